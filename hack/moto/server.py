"""Serves moto, with corrections, on 127.0.0.1.

    server.py [PORT]

Prints one line with the address it listens on. Ends when its standard input does, so that it never outlives the test
that started it, not even one that was killed.
"""

import os
import pathlib
import sys
import threading
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).parent))
os.environ.setdefault("MOTO_PORT", "0")

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server

import patches


def end_with_stdin():
    sys.stdin.buffer.read()
    os._exit(0)


class QuietHandler(MotoRequestHandler):
    def log_request(self, *_args):
        pass


def main():
    # For codes that botocore's models don't declare.
    warnings.simplefilter("ignore")
    patches.apply()
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    app = DomainDispatcherApplication(create_backend_app)
    server = make_server("127.0.0.1", port, app, threaded=True, request_handler=QuietHandler)
    # What moto can't do ends in an answer of status 500; its stack trace would only be noise between the tests' lines.
    server.log = lambda *_args, **_kwargs: None
    host, port = server.server_address[:2]
    assert host == "127.0.0.1", host
    # moto sends some requests to itself at this port.
    os.environ["MOTO_PORT"] = str(port)
    threading.Thread(target=end_with_stdin, daemon=True).start()
    print(f"{host}:{port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
