// The npm package `nethernet` as a peer that sends everything back.
//
//   node nethernet.cjs werift|wrtc listen ID
//   node nethernet.cjs werift|wrtc dial ID TIMES
//
// Says a line for whatever happens. A packet `bye` makes it close the session. The package writes the number of
// fragments modulo 256: what is too big for it to send comes back as `got LENGTH SHA256`.
'use strict'
const { createHash } = require('node:crypto')
const { Client, Server } = require('nethernet')

const FRAGMENT = 10_000
const MOST = 255 * FRAGMENT
const ADVERT = Buffer.from('a world of another program')

const [, , webrtcBackend, verb, id, times] = process.argv

function answer (connection, packet) {
  if (packet.toString('latin1', 0, 4) === 'bye') return connection.close('bye')
  if (packet.length <= MOST) return connection.send(packet)
  connection.send(`got ${packet.length} ${createHash('sha256').update(packet).digest('hex')}`)
}

// The package opens the second channel and never reads it; its engine does.
function mirror (connection) {
  const channel = connection.unreliable
  channel.onmessage = ({ data }) => channel.send(Buffer.from(data))
}

async function listen () {
  const server = new Server({ webrtcBackend, networkId: BigInt(id) })
  server.setAdvertisement(ADVERT)
  server.on('openConnection', (connection) => {
    mirror(connection)
    console.log('open')
  })
  server.on('encapsulated', (packet, address) => answer(server.connections.get(address), packet))
  server.on('closeConnection', (address, reason) => console.log(`closed ${reason}`))
  await server.listen()
  console.log('listening')
}

function dial () {
  return new Promise((resolve) => {
    const client = new Client(BigInt(id), undefined, { webrtcBackend })
    let current
    client.on('pong', (host) => console.log(`pong ${host.sender_id} ${Buffer.from(host.data, 'hex')}`))
    client.on('connected', (connection) => {
      current = connection
      mirror(connection)
      console.log('open')
    })
    client.on('encapsulated', (packet) => answer(current, packet))
    client.on('error', (error) => console.log(`error ${error.message}`))
    client.on('disconnect', (_, reason) => {
      console.log(`closed ${reason}`)
      client.close()
      resolve()
    })
    client.connect()
  })
}

async function main () {
  if (verb === 'listen') return listen()
  for (let n = 0; n < Number(times); n++) await dial()
  process.exit(0)
}

main()
