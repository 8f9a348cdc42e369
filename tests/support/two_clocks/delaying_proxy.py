"""A TCP proxy between two network namespaces that delays: ``delaying_proxy.py FROM_NAMESPACE TO_NAMESPACE PORT``.

All data is delayed by 1 ms and a random part of another 0.2 ms, in each direction.
"""

import ctypes
import queue
import random
import socket
import sys
import threading
import time

DELAY_S, JITTER_S = 0.001, 0.0002
_CLONE_NEWNET = 0x40000000


def enter(namespace: str) -> None:
    with open(f"/run/netns/{namespace}", "rb") as handle:
        if ctypes.CDLL(None, use_errno=True).setns(handle.fileno(), _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")


def relay(source: socket.socket, target: socket.socket) -> None:
    waiting: queue.Queue[tuple[float, bytes]] = queue.Queue()

    def send() -> None:
        while True:
            due, data = waiting.get()
            time.sleep(max(0.0, due - time.monotonic()))
            target.sendall(data) if data else target.shutdown(socket.SHUT_WR)
            if not data:
                return

    threading.Thread(target=send, daemon=True).start()
    while data := source.recv(1 << 16):
        waiting.put((time.monotonic() + DELAY_S + random.uniform(0, JITTER_S), data))
    waiting.put((time.monotonic(), b""))


if __name__ == "__main__":
    inside, outside, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
    enter(inside)
    listener = socket.create_server(("127.0.0.1", port))
    enter(outside)
    print("ready", flush=True)
    while True:
        client, _ = listener.accept()
        try:
            server = socket.create_connection(("127.0.0.1", port))
        except OSError:  # the store is not there yet; the client will try again
            client.close()
            continue
        for one, other in ((client, server), (server, client)):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=relay, args=(one, other), daemon=True).start()
