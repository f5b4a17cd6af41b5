"""A TCP proxy before musterd that can be cut. A cut delays bytes in one direction or both, like
packets that a network loses and TCP sends again. A connection that is made during the cut is
accepted and gets no bytes."""

import contextlib
import socket
import struct
import threading

from tests.bazel import bound


class Proxy:
    """Listens on a separate port for connections to `target` (host:port)."""

    def __init__(self, target):
        host, port = target.rsplit(":", 1)
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        # Set: bytes pass.
        self._to_target, self._from_target = threading.Event(), threading.Event()
        self.heal()
        # Bytes that had to wait because of a cut, in each direction: the proof that it was one.
        self.held = {"to": 0, "from": 0}
        self._sockets = set()
        self._closed = False
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, to=True, back=True):
        """`to`: no bytes reach musterd; `back`: no bytes come from it."""
        self.held = {"to": 0, "from": 0}
        if to:
            self._to_target.clear()
        if back:
            self._from_target.clear()

    def heal(self):
        self._to_target.set()
        self._from_target.set()

    def close(self):
        self._closed = True
        self._listener.close()
        for connection in list(self._sockets):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self.heal()

    def _accept(self):
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        self._to_target.wait()
        try:
            server = socket.create_connection(self._target, timeout=bound(5))
        except OSError:
            # No process listens there: reset the connection at once.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
            return
        server.settimeout(None)
        for connection in (client, server):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._sockets.add(connection)
        back = threading.Thread(
            target=self._pump, args=(server, client, self._from_target, "from"), daemon=True
        )
        back.start()
        self._pump(client, server, self._to_target, "to")
        back.join()
        for connection in (client, server):
            self._sockets.discard(connection)
            connection.close()

    def _pump(self, source, sink, passes, direction):
        with contextlib.suppress(OSError):
            while True:
                data = source.recv(1 << 16)
                if not passes.is_set():
                    self.held[direction] += max(len(data), 1)
                    passes.wait()
                if not data:
                    break
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)
