"""Exit with 0 where the process of this container can take reports: its HTTP door says so.

It imports the standard library alone, because Docker runs it again and again, and `hearsay health`
takes a second of processor time. The certificate is not looked at: it names the host that others
call, and nobody is between.
"""

import os
import ssl
import sys
from urllib.error import HTTPError
from urllib.request import HTTPSHandler, ProxyHandler, build_opener

port = os.environ["HEARSAY_HTTP"].rpartition(":")[2]
scheme = "https" if os.environ.get("HEARSAY_TLS_CERTIFICATE") else "http"
context = ssl.create_default_context()
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
opener = build_opener(ProxyHandler({}), HTTPSHandler(context=context))
try:
    with opener.open(f"{scheme}://127.0.0.1:{port}/readyz", timeout=5):
        pass
except HTTPError as error:
    sys.exit(f"not ready: {error.read(200).decode(errors='replace').strip()}")
except OSError as error:
    sys.exit(f"no answer: {error}")
