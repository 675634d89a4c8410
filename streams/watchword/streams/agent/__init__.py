"""What runs on the joining machine: it makes a key, asks to join, and keeps what it was given.

It carries no server part: no store, no join core, no database driver and no web server. The four
things it does are `bootstrap.bootstrap`, `join.join`, `daemon.run` and `status.status`; heavy
libraries (httpx, aiokafka) are imported by the transport that needs them, when it is opened.
"""
