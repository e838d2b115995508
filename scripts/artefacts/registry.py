"""A registry of OCI artefacts, by the HTTP API of the distribution specification."""

import base64
import http.client
import json
import os
import re
import time
from pathlib import Path
from urllib.parse import quote, urlencode, urljoin, urlsplit

from .common import Fault

ATTEMPTS = 4
# A registry that is loopback speaks HTTP, as engines assume as well.
PLAIN_HOSTS = ("localhost", "127.0.0.1", "[::1]")


class Registry:
    """One registry, with the caller's credentials for it."""

    def __init__(self, host):
        self.host = host
        self.scheme = "http" if host.rsplit(":", 1)[0] in PLAIN_HOSTS else "https"
        self.credentials = credentials(host)
        self.authorization = {}

    def has(self, repository, kind, name, accept="*/*"):
        """Whether a repository has a blob or a manifest; gives its digest if the registry names it."""
        response = self.ask("HEAD", repository, f"{kind}/{name}", headers={"Accept": accept})
        if response.status == 404:
            return None
        expect(response, 200)
        return response.headers.get("Docker-Content-Digest") or name

    def push_blob(self, repository, descriptor, content):
        """Uploads a blob, bytes or the path of a file, in one request."""
        started = expect(self.ask("POST", repository, "blobs/uploads/"), 202)
        location = urljoin(f"{self.scheme}://{self.host}/", started.headers["Location"])
        joint = "&" if urlsplit(location).query else "?"
        url = f"{location}{joint}{urlencode({'digest': descriptor['digest']})}"
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(descriptor["size"])}
        expect(self.request("PUT", url, repository, headers, content), 201)

    def push_manifest(self, repository, name, media_type, content):
        headers = {"Content-Type": media_type}
        expect(self.ask("PUT", repository, f"manifests/{name}", headers=headers, body=content), 201)

    def ask(self, method, repository, path, headers=None, body=None):
        url = f"{self.scheme}://{self.host}/v2/{quote(repository)}/{path}"
        return self.request(method, url, repository, headers or {}, body)

    def request(self, method, url, repository, headers, body):
        """Sends a request, again where the connection breaks or the registry is busy, and with a token where it wants one."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                response = self.send(method, url, repository, headers, body)
            except (OSError, http.client.HTTPException) as fault:
                if attempt == ATTEMPTS:
                    raise Fault(f"{method} {url}: {fault}") from fault
            else:
                if response.status < 500 and response.status != 429 or attempt == ATTEMPTS:
                    return response
            time.sleep(2 ** (attempt - 1) / 2)

    def send(self, method, url, repository, headers, body):
        """One request; a second one with new rights, if the first has none, or they have expired."""
        # Uploads may be taken by another host, which the credentials are not for.
        own = urlsplit(url).netloc == self.host
        response = exchange(method, url, {**headers, **(self.authorization.get(repository, {}) if own else {})}, body)
        if response.status != 401 or not own:
            return response
        self.authorization[repository] = self.authorize(repository, response.headers.get("WWW-Authenticate", ""))
        return exchange(method, url, {**headers, **self.authorization[repository]}, body)

    def authorize(self, repository, challenge):
        """The header that a challenge asks for."""
        kind, _, rest = challenge.partition(" ")
        if kind.lower() == "basic":
            return self.basic()
        if kind.lower() != "bearer":
            raise Fault(f"{self.host} wants an authentication that is unknown: {challenge or 'none is named'}")

        parameters = dict(re.findall(r'(\w+)="([^"]*)"', rest))
        query = {"service": parameters.get("service", ""), "scope": f"repository:{repository}:pull,push"}
        headers = self.basic() if self.credentials else {}
        response = expect(exchange("GET", f"{parameters['realm']}?{urlencode(query)}", headers, None), 200)
        answer = json.loads(response.body)
        return {"Authorization": f"Bearer {answer.get('token') or answer['access_token']}"}

    def basic(self):
        if not self.credentials:
            raise Fault(
                f"{self.host} wants credentials: set REGISTRY_USER and REGISTRY_PASSWORD, or log in with docker or podman"
            )
        return {"Authorization": f"Basic {self.credentials}"}


class Response:
    """An answer, whose body was read."""

    def __init__(self, response):
        self.status = response.status
        self.headers = response.headers
        self.body = response.read()


def exchange(method, url, headers, body):
    """One request; a body may be the path of a file."""
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.netloc, timeout=300)
    target = parts.path + (f"?{parts.query}" if parts.query else "")
    try:
        if isinstance(body, Path):
            with open(body, "rb") as stream:
                connection.request(method, target, stream, headers)
                return Response(connection.getresponse())
        connection.request(method, target, body, headers)
        return Response(connection.getresponse())
    finally:
        connection.close()


def expect(response, status):
    if response.status != status:
        raise Fault(f"the registry answers {response.status}: {response.body.decode(errors='replace').strip()[:500]}")
    return response


def credentials(host):
    """User and password in base64: of the environment, or of the file that `docker login` writes."""
    user = os.environ.get("REGISTRY_USER")
    if user:
        return base64.b64encode(f"{user}:{os.environ.get('REGISTRY_PASSWORD', '')}".encode()).decode()
    folder = os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker"
    file = Path(os.environ.get("REGISTRY_AUTH_FILE") or Path(folder, "config.json"))
    known = json.loads(file.read_text()).get("auths", {}) if file.exists() else {}
    return known.get(host, {}).get("auth")
