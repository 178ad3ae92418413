"""`python -m tests.bars.serve asgi|wsgi PORT`: serve the project; says so when it does."""

import os
import socketserver
import sys
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import django

os.environ["DJANGO_SETTINGS_MODULE"] = "tests.bars.settings"
# Whoever imports it is found out.
sys.modules["django_eventstream"] = None  # type: ignore[assignment]
django.setup()


def serve_asgi(port: int) -> None:
    import uvicorn
    from django.contrib.staticfiles.handlers import ASGIStaticFilesHandler
    from django.core.asgi import get_asgi_application

    application = ASGIStaticFilesHandler(get_asgi_application())
    uvicorn.run(application, port=port, lifespan="off", log_level="warning")


def serve_wsgi(port: int) -> None:
    from django.contrib.staticfiles.handlers import StaticFilesHandler
    from django.core.wsgi import get_wsgi_application

    application = StaticFilesHandler(get_wsgi_application())
    make_server("127.0.0.1", port, application, Threads, Quiet).serve_forever()


class Threads(socketserver.ThreadingMixIn, WSGIServer):
    daemon_threads = True


class Quiet(WSGIRequestHandler):
    def log_message(self, *_arguments: object) -> None:
        pass


if __name__ == "__main__":
    how, port = sys.argv[1:]
    {"asgi": serve_asgi, "wsgi": serve_wsgi}[how](int(port))
