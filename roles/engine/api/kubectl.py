"""kubectl on the node, if its sshd forbids forwarding: `kubectl get --raw` to read, curl through `kubectl proxy` to write."""

from __future__ import annotations

import base64
import re
import shlex

from roles.engine.api import errors
from roles.engine.api.client import CA_WAY_OUT, DONE, TLS_SERVER_NAME, Api, RunCommand, tls_way_out
from roles.engine.bounds import digits

ADMIN_CONF = "/etc/kubernetes/admin.conf"

#: kubectl proxy on a socket that only root can reach, and curl through it; neither leaves anything behind. One proxy for each request: it
#: could keep a connection to an API server that is ending.
_BY_PROXY = """\
command -v kubectl >/dev/null || {{ echo "sh: kubectl: not found" >&2; exit 127; }}
command -v curl >/dev/null || {{ echo "sh: curl: not found" >&2; exit 127; }}
d=$(mktemp -d) || exit 1
trap 'kill "$p" 2>/dev/null; rm -rf "$d"' EXIT
trap 'exit 1' HUP INT TERM
{proxy} --unix-socket="$d/api" >"$d/log" 2>&1 </dev/null &
p=$!
i=0
while [ ! -S "$d/api" ] && kill -0 "$p" 2>/dev/null && [ "$i" -lt 100 ]; do i=$((i + 1)); sleep 0.1; done
[ -S "$d/api" ] || {{ tail -n 3 "$d/log" >&2; exit 1; }}
printf %s {body} | base64 -d | {curl} --unix-socket "$d/api"
"""
#: What kubectl prints of an answer (kubectl/pkg/cmd/util/helpers.go: StandardErrorMessage), and of one without a Status object
#: (apimachinery/pkg/api/errors: NewGenericServerResponse).
_ANSWER = re.compile(r"^Error from server(?: \((?P<reason>\w+)\))?: (?P<said>.*)", re.MULTILINE | re.DOTALL)
_UNREAD = re.compile(r'an error on the server \("(?P<said>.*)"\) has prevented the request from succeeding', re.DOTALL)
#: The status codes of its reasons (apimachinery meta/v1/types.go: StatusReason); 500 without one.
_REASONS = {
    "Unauthorized": 401,
    "Forbidden": 403,
    "NotFound": 404,
    "AlreadyExists": 409,
    "Conflict": 409,
    "Gone": 410,
    "Expired": 410,
    "Invalid": 422,
    "BadRequest": 400,
    "MethodNotAllowed": 405,
    "NotAcceptable": 406,
    "RequestEntityTooLarge": 413,
    "UnsupportedMediaType": 415,
    "TooManyRequests": 429,
    "InternalError": 500,
    "ServerTimeout": 500,
    "ServiceUnavailable": 503,
    "Timeout": 504,
}


class KubectlApi(Api):
    """The API through kubectl on the node, if forwarding is forbidden. Credentials stay in the node's own file."""

    def __init__(
        self,
        run: RunCommand,
        server: tuple[str, int],
        host: str,
        kubeconfig_path: str = ADMIN_CONF,
        tls_server_name: str = TLS_SERVER_NAME,
    ) -> None:
        super().__init__(host)
        self._run = run
        address, port = server
        self._url = f"https://[{address}]:{port}" if ":" in address else f"https://{address}:{port}"
        self._path = kubeconfig_path
        self._name = tls_server_name

    def _get(self, path: str, timeout: float) -> bytes:
        # Whole milliseconds: Go's durations have no exponents.
        command = self._kubectl(f"--request-timeout={max(int(timeout * 1000), 1)}ms", "get", f"--raw={path}")
        # kubectl asks for a user name if a kubeconfig has none: it gets no input.
        ok, out, err = self._run(f"{command} </dev/null")
        if ok:
            return out.encode("utf-8", "surrogateescape")
        raise self._failed(path, err)

    def _send(self, verb: str, path: str, content: str, body: bytes, timeout: float) -> bytes:
        # `kubectl apply` cannot be used: it moves the fields of client-side apply to its own field manager, and then drops those that
        # our manifest does not have (kubectl/pkg/cmd/apply: migrateToSSAIfNecessary). Nor can kubectl send a raw PATCH.
        headers = ["--header", f"Content-Type: {content}", "--header", "Accept: application/json"]
        curl = curl_command(timeout, "--request", verb, *headers, "--data-binary", "@-", f"http://localhost{path}")
        script = _BY_PROXY.format(proxy=self._kubectl("proxy"), curl=curl, body=base64.b64encode(body).decode())
        ok, out, err = self._run(script)
        status, data = curl_answer(out)
        if not ok or not status:
            raise self._failed(path, err)
        if status in DONE:
            return data
        if status in (500, 502) and not data.lstrip().startswith((b"{", b"Internal Server Error: ")):
            # The proxy's own words: it did not reach the API server, or does not trust it.
            raise self._failed(path, data.decode("utf-8", "replace"))
        raise errors.by_status(self._host, path, status, data)

    def _kubectl(self, *arguments: str) -> str:
        who = (f"--kubeconfig={self._path}", f"--server={self._url}", f"--tls-server-name={self._name}")
        return shlex.join(["kubectl", *who, *arguments])

    def _failed(self, path: str, words: str) -> errors.ApiError:
        host, url = self._host, self._url
        if (answer := _ANSWER.search(words)) is not None:
            said = answer["said"]
            unread = _UNREAD.match(said)
            return errors.by_status(host, path, _REASONS.get(answer["reason"] or "", 500), (unread["said"] if unread else said).encode())
        text = " ".join(words.split()) or "kubectl failed without a message"
        lower = text.lower()
        if "must be logged in" in lower or "please enter username" in lower or "unauthorized" in lower:
            return errors.by_status(host, path, 401, text.encode())
        if "x509:" in lower or "tls:" in lower or "http response to https client" in lower:
            return errors.TLS(
                host,
                path,
                f"the certificate at {url} is not valid for {self._name!r} by the CA in {self._path} ({text})",
                tls_way_out(lower) or CA_WAY_OUT,
            )
        if "timeout" in lower or "timed out" in lower or "deadline exceeded" in lower:
            return errors.Timeout(host, path, f"timed out waiting for an answer from {url} ({text})", "check the kube-apiserver there")
        if any(word in lower for word in ("refused", "unable to connect", "connection reset", "eof", "no route")):
            return errors.Unreachable(
                host,
                path,
                f"nothing answers at {url} as seen from {host} ({text})",
                "check the kube-apiserver there: `crictl ps -a`, `journalctl -u kubelet`",
            )
        if "not found" in lower:
            tool = "curl" if "curl" in lower else "kubectl"
            return errors.ForwardingForbidden(
                host, path, f"forwarding is forbidden, and there is no {tool} ({text})", f"allow forwarding, or install {tool}"
            )
        return errors.Unusable(host, path, f"kubectl failed ({text})", f"run it by hand there, with --kubeconfig={self._path}")


def curl_command(timeout: float, *arguments: str) -> str:
    """curl on the node, for `curl_answer`, without the node's own settings of curl. `timeout` in seconds."""
    always = ["-q", "--silent", "--show-error", "--noproxy", "*", "--max-time", str(max(int(timeout), 1)), "--write-out", "\\n%{http_code}"]
    return shlex.join(["curl", *always, *arguments])


def curl_answer(out: str) -> tuple[int, bytes]:
    """HTTP status and body from the output of `curl_command`; 0 if there is no status."""
    answer, _, status = out.rstrip("\n").rpartition("\n")
    return digits(status) or 0, answer.encode("utf-8", "surrogateescape")
