"""aiortc behind NetherNet's HTTP signalling, as a peer that sends everything back.

    aiortc_peer.py listen PORT
    aiortc_peer.py dial URL TIMES

Says a line for whatever happens. A packet `bye` makes it close the session.
"""

import asyncio
import sys
import urllib.request

from aiortc import RTCConfiguration, RTCPeerConnection, RTCSessionDescription

FRAGMENT = 262_143


def say(line):
    print(line, flush=True)


class Peer:
    def __init__(self):
        # Without this it asks a public STUN server; an empty list is taken for none given.
        self.pc = RTCPeerConnection(RTCConfiguration(iceServers=[]))
        self.labels = set()
        self.opened = asyncio.Event()
        self.ended = asyncio.Event()
        self.why = "?"
        self.pc.on("datachannel", self.add)
        self.pc.on("connectionstatechange", self.state)

    def state(self):
        if self.pc.connectionState in ("failed", "closed"):
            self.over(self.pc.connectionState)

    def over(self, why):
        if not self.ended.is_set():
            self.why = why
            self.ended.set()

    def add(self, channel):
        parts = []

        def begin():
            self.labels.add(channel.label)
            if len(self.labels) == 2:
                self.opened.set()

        def message(data):
            parts.append(data[1:])
            if data[0] > 0:
                return
            packet = b"".join(parts)
            parts.clear()
            if packet == b"bye":
                self.over("bye")
                return
            count = -(-len(packet) // FRAGMENT)
            for n in range(count):
                channel.send(bytes([count - 1 - n]) + packet[n * FRAGMENT : (n + 1) * FRAGMENT])

        channel.on("open", begin)
        channel.on("message", message)
        channel.on("close", lambda: self.over("their end"))
        if channel.readyState == "open":
            begin()

    async def offer(self):
        self.add(self.pc.createDataChannel("ReliableDataChannel"))
        self.add(self.pc.createDataChannel("UnreliableDataChannel", ordered=False, maxRetransmits=0))
        await self.pc.setLocalDescription(await self.pc.createOffer())
        return self.pc.localDescription.sdp

    async def answer(self, sdp):
        await self.pc.setRemoteDescription(RTCSessionDescription(sdp, "offer"))
        await self.pc.setLocalDescription(await self.pc.createAnswer())
        return self.pc.localDescription.sdp

    async def follow(self):
        """Until the end of the session."""
        waits = [asyncio.ensure_future(event.wait()) for event in (self.opened, self.ended)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        if self.opened.is_set():
            say("open")
        await waits[1]
        say(f"closed {self.why}")
        await self.pc.close()


async def serve(reader, writer):
    """One HTTP request a connection."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    headers = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
    body = (await reader.readexactly(int(headers.get("content-length", 0)))).decode()
    peer = None
    sdp = ""
    if head.startswith("POST"):
        peer = Peer()
        sdp = await peer.answer(body)
    text = sdp.encode()
    kind = "content-type: application/sdp\r\n" if peer else ""
    writer.write(f"HTTP/1.1 200 OK\r\n{kind}content-length: {len(text)}\r\nconnection: close\r\n\r\n".encode() + text)
    await writer.drain()
    writer.close()
    if peer:
        await peer.follow()


async def listen(port):
    server = await asyncio.start_server(serve, "0.0.0.0", port)
    say("listening")
    await server.serve_forever()


def post(url, sdp):
    request = urllib.request.Request(url, sdp.encode(), {"content-type": "application/sdp"})
    with urllib.request.urlopen(request) as answer:
        return answer.read().decode()


async def dial(url, times):
    for _ in range(times):
        peer = Peer()
        sdp = await asyncio.to_thread(post, url, await peer.offer())
        await peer.pc.setRemoteDescription(RTCSessionDescription(sdp, "answer"))
        await peer.follow()


def main():
    verb, where, *times = sys.argv[1:]
    asyncio.run(listen(int(where)) if verb == "listen" else dial(where, int(times[0])))


main()
