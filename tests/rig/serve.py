#!/usr/bin/env python3
"""serve.py DIR [--port N] - serves DIR over HTTP on 127.0.0.1.

Prints `listening http://127.0.0.1:PORT` and runs until SIGTERM, or until its
standard input ends: who starts it holds a pipe to it, and when that process is
gone, however it went, the server goes too.
"""

import argparse
import functools
import http.server
import os
import signal
import sys
import threading


class Handler(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # apt asks for many files on one connection

    def log_message(self, *_):
        pass


def main():
    parser = argparse.ArgumentParser(description="serve a folder over HTTP on 127.0.0.1")
    parser.add_argument("dir")
    parser.add_argument("--port", type=int, default=0, help="0, the default: a free one")
    args = parser.parse_args()
    if not os.path.isdir(args.dir):
        parser.error(f"no such folder: {args.dir}")

    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", args.port), functools.partial(Handler, directory=args.dir)
    )
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"listening http://127.0.0.1:{server.server_port}", flush=True)
    try:
        while sys.stdin.buffer.read(4096):
            pass
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
