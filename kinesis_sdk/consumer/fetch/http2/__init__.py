"""Enhanced fan-out over HTTP/2: a thousand subscriptions on eight connections and four threads.

| module | |
|---|---|
| `protocol` | one connection without a socket, on top of the package h2 |
| `pushed` | one response: its event stream, cut into messages |
| `connection` | the streams of one connection: windows, readers, deadlines |
| `loop` | a thread that serves several connections |
| `client` | boto3's calls over these connections |

A GOAWAY ends all subscriptions of its connection at once, because h2 accepts no frames after it. The subscriptions continue where they
stopped, over another connection.
"""
