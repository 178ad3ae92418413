"""The examples under ASGI, where progress bars are sent and not asked for."""

import os

from django.contrib.staticfiles.handlers import ASGIStaticFilesHandler
from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings")
application = ASGIStaticFilesHandler(get_asgi_application())
