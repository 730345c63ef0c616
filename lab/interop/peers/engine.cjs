// A WebRTC engine behind NetherNet's HTTP signalling.
//
//   node engine.cjs libdatachannel|chromium listen PORT
//   node engine.cjs libdatachannel|chromium dial URL TIMES
//
// Says a line for whatever happens; page.js says what its sessions do.
'use strict'
const { spawn } = require('node:child_process')
const { readFileSync } = require('node:fs')
const http = require('node:http')
const path = require('node:path')

const [, , engine, verb, where, times] = process.argv
const PAGE = readFileSync(path.join(__dirname, 'page.js'), 'utf8')
const FLAGS = ['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-sync',
  '--disable-background-networking', '--disable-component-update', '--disable-dev-shm-usage', '--remote-debugging-pipe']

// The package libdatachannel is bound by speaks as browsers do.
function library () {
  Object.assign(globalThis, require('node-datachannel/polyfill'))
  // A script of this folder, read once more as a page would.
  require('node:vm').runInThisContext(PAGE)
  return (verb, ...words) => globalThis.peers[verb](...words)
}

// A page in a browser, spoken to over two pipes: JSON texts that end with a zero byte.
async function browser () {
  const profile = path.join(process.env.PROFILE, String(process.pid))
  const child = spawn(process.env.CHROMIUM, [...FLAGS, `--user-data-dir=${profile}`, 'about:blank'],
    { stdio: ['ignore', 'ignore', 'inherit', 'pipe', 'pipe'] })
  process.on('exit', () => child.kill('SIGKILL'))
  const waiting = new Map()
  let rest = Buffer.alloc(0)
  child.stdio[4].on('data', (bytes) => {
    rest = Buffer.concat([rest, bytes])
    for (let end = rest.indexOf(0); end >= 0; end = rest.indexOf(0)) {
      const { id, result, error } = JSON.parse(rest.subarray(0, end))
      rest = rest.subarray(end + 1)
      const known = waiting.get(id)
      waiting.delete(id)
      if (error) known?.reject(new Error(error.message))
      else known?.resolve(result)
    }
  })
  let last = 0
  const call = (method, params, sessionId) => new Promise((resolve, reject) => {
    waiting.set(++last, { resolve, reject })
    child.stdio[3].write(JSON.stringify({ id: last, method, params, sessionId }) + '\0')
  })
  const { targetId } = await call('Target.createTarget', { url: 'about:blank' })
  const { sessionId } = await call('Target.attachToTarget', { targetId, flatten: true })
  const run = async (expression) => {
    const said = await call('Runtime.evaluate', { expression, awaitPromise: true, returnByValue: true }, sessionId)
    if (said.exceptionDetails) throw new Error(said.exceptionDetails.exception?.description ?? 'a fault in the page')
    return said.result.value
  }
  await run(PAGE)
  return (verb, ...words) => run(`peers.${verb}(${words.map((word) => JSON.stringify(word)).join(', ')})`)
}

async function follow (peer, id) {
  const state = await peer('open', id)
  console.log(state)
  if (state === 'open') console.log(`closed ${await peer('end', id)}`)
}

function listen (peer) {
  const server = http.createServer(async (request, response) => {
    if (request.method === 'GET') return response.end()
    const parts = []
    for await (const part of request) parts.push(part)
    try {
      const { id, sdp } = await peer('answer', Buffer.concat(parts).toString())
      response.setHeader('content-type', 'application/sdp')
      response.end(sdp)
      await follow(peer, id)
    } catch (error) {
      console.log(`error ${error.message}`)
      if (!response.headersSent) response.writeHead(400).end()
    }
  })
  server.listen(Number(where), () => console.log('listening'))
}

async function dial (peer) {
  const { id, sdp } = await peer('offer')
  const answer = await fetch(where, { method: 'POST', headers: { 'content-type': 'application/sdp' }, body: sdp })
  const text = await answer.text()
  if (answer.status !== 200) return console.log(`error ${answer.status} ${text}`)
  await peer('accept', id, text)
  await follow(peer, id)
}

async function main () {
  const peer = engine === 'chromium' ? await browser() : library()
  if (verb === 'listen') return listen(peer)
  for (let n = 0; n < Number(times); n++) await dial(peer)
  process.exit(0)
}

main().catch((error) => {
  console.log(`error ${error.stack}`)
  process.exit(1)
})
