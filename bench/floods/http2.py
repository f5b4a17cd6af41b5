"""HTTP/2 by hand (RFC 9113), as much as a stranger needs who does not keep to the rules."""

import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING = 0, 1, 3, 4, 6
END_STREAM, END_HEADERS, ACK = 1, 4, 1
CANCEL = 8


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(
        ">I", stream
    ) + payload


def field(name, value):
    """A header field that no table holds (RFC 7541, 6.2.2); lengths below 127."""
    name, value = name.encode(), value.encode()
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


def call(stream, method, end=False):
    """The headers of a call."""
    fields = [(":method", "POST"), (":scheme", "http"), (":path", method)]
    fields += [(":authority", "localhost"), ("content-type", "application/grpc")]
    fields += [("te", "trailers")]
    block = b"".join(field(name, value) for name, value in fields)
    return frame(HEADERS, END_HEADERS | (END_STREAM if end else 0), stream, block)


def submessages(path, last, count):
    """A protobuf message with so many empty sub-messages in the field `last` (below 16) of the
    message that the fields `path` lead to."""
    body = bytes([last << 3 | 2, 0]) * count
    for number in reversed(path):
        size, length = len(body), b""
        while size > 127:
            length += bytes([size & 127 | 128])
            size >>= 7
        body = bytes([number << 3 | 2]) + length + bytes([size]) + body
    return body


def message(stream, body):
    """The only message of a call."""
    return frame(DATA, END_STREAM, stream, b"\0" + struct.pack(">I", len(body)) + body)


def reset(stream):
    return frame(RST_STREAM, 0, stream, struct.pack(">I", CANCEL))


def hello():
    return PREFACE + frame(SETTINGS, 0, 0)
