// A WebRTC peer in the words of browsers, for pages and for packages that speak as browsers do: two channels, packets in
// fragments with a countdown, everything sent back. A packet `bye` makes it close the session.
(() => {
  const FRAGMENT = 262_143
  const GATHERING = 5_000
  const peers = []

  function opened (pc) {
    const peer = { pc, open: new Set(), parts: { }, over: null }
    peer.ended = new Promise((resolve) => { peer.over = resolve })
    peer.ready = new Promise((resolve) => { peer.opened = resolve })
    pc.addEventListener('connectionstatechange', () => {
      if (pc.connectionState === 'failed' || pc.connectionState === 'closed') peer.over(pc.connectionState)
    })
    peers.push(peer)
    return peer
  }

  function close (peer, why) {
    peer.pc.close()
    peer.over(why)
  }

  function add (peer, channel) {
    channel.binaryType = 'arraybuffer'
    const parts = []
    let due = 0
    const begin = () => {
      peer.open.add(channel.label)
      if (peer.open.size === 2) peer.opened()
    }
    channel.onopen = begin
    if (channel.readyState === 'open') begin()
    channel.onclose = () => close(peer, 'their end')
    channel.onmessage = ({ data }) => {
      const message = new Uint8Array(data)
      if (parts.length > 0 && message[0] !== due - 1) return close(peer, 'a gap')
      due = message[0]
      parts.push(message.subarray(1))
      if (due > 0) return
      let at = 0
      const packet = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0))
      for (const part of parts.splice(0)) {
        packet.set(part, at)
        at += part.length
      }
      if (packet.length === 3 && String.fromCharCode(...packet) === 'bye') return close(peer, 'bye')
      send(channel, packet)
    }
  }

  function send (channel, packet) {
    const count = Math.ceil(packet.length / FRAGMENT)
    for (let n = 0; n < count; n++) {
      const part = packet.subarray(n * FRAGMENT, (n + 1) * FRAGMENT)
      const message = new Uint8Array(1 + part.length)
      message[0] = count - 1 - n
      message.set(part, 1)
      channel.send(message)
    }
  }

  function gathered (pc) {
    if (pc.iceGatheringState === 'complete') return
    return new Promise((resolve) => {
      pc.addEventListener('icegatheringstatechange', () => { if (pc.iceGatheringState === 'complete') resolve() })
      setTimeout(resolve, GATHERING)
    })
  }

  globalThis.peers = {
    async offer () {
      const pc = new RTCPeerConnection({ iceServers: [] })
      const peer = opened(pc)
      add(peer, pc.createDataChannel('ReliableDataChannel'))
      add(peer, pc.createDataChannel('UnreliableDataChannel', { ordered: false, maxRetransmits: 0 }))
      await pc.setLocalDescription(await pc.createOffer())
      await gathered(pc)
      return { id: peers.length - 1, sdp: pc.localDescription.sdp }
    },
    async answer (sdp) {
      const pc = new RTCPeerConnection({ iceServers: [] })
      const peer = opened(pc)
      pc.ondatachannel = ({ channel }) => add(peer, channel)
      await pc.setRemoteDescription({ type: 'offer', sdp })
      await pc.setLocalDescription(await pc.createAnswer())
      await gathered(pc)
      return { id: peers.length - 1, sdp: pc.localDescription.sdp }
    },
    async accept (id, sdp) {
      await peers[id].pc.setRemoteDescription({ type: 'answer', sdp })
    },
    // What comes first: both channels open, or the end.
    open: (id) => Promise.race([peers[id].ready.then(() => 'open'), peers[id].ended.then((why) => `closed ${why}`)]),
    end: (id) => peers[id].ended
  }
})()
