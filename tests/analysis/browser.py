"""Drives a headless Chromium over the DevTools protocol through pipes: a page, its log and requests, its screenshots.
Uses only Python's standard library."""
import base64
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--disable-sync",
         "--disable-background-networking", "--disable-component-update", "--disable-extensions", "--mute-audio",
         "--disable-dev-shm-usage", "--host-resolver-rules=MAP * ~NOTFOUND", "--remote-debugging-pipe"]
PATIENCE = 40  # seconds to wait for an answer


class Page:
    """One tab. `events` has all events so far. Use it as a context manager."""

    def __init__(self, width=1200, height=900, mobile=False):
        self.profile = tempfile.mkdtemp(prefix="headspan_browser_")
        to_browser, from_here = os.pipe()
        from_browser, to_here = os.pipe()
        redirect = f'exec "$@" 3<&{to_browser} 4>&{to_here}'  # the browser reads descriptor 3 and writes 4
        # bash, because in other shells descriptors have one digit, and matplotlib keeps its fonts open
        self.process = subprocess.Popen(
            ["bash", "-c", redirect, "bash", str(CHROMIUM), *FLAGS, f"--user-data-dir={self.profile}", "about:blank"],
            pass_fds=(to_browser, to_here), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True, env={**os.environ, "TMPDIR": self.profile})
        os.close(to_browser)
        os.close(to_here)
        self.out, self.into, self.buffer = from_here, from_browser, b""
        self.events, self.count, self.session = [], 0, None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.resize(width, height, mobile)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.killpg(self.process.pid, signal.SIGKILL)  # its helpers too, which would still write to the profile
        self.process.wait()
        os.close(self.out)
        os.close(self.into)
        shutil.rmtree(self.profile, ignore_errors=True)

    def read(self, patience):
        """Returns the next message. Raises TimeoutError."""
        until = time.monotonic() + patience
        while b"\0" not in self.buffer:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self.into], [], [], left)[0]:
                raise TimeoutError("the browser does not answer")
            chunk = os.read(self.into, 1 << 20)
            if not chunk:
                raise EOFError("the browser has ended")
            self.buffer += chunk
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, **parameters):
        self.count += 1
        message = {"id": self.count, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.out, data):]
        while True:
            answer = self.read(PATIENCE)
            if answer.get("id") == self.count:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def resize(self, width, height, mobile=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)

    def open(self, path):
        """Opens a page. Returns the seconds until the page says that it is drawn."""
        start = time.monotonic()
        self.call("Page.navigate", url=path.resolve().as_uri())
        self.wait("document.body && document.body.dataset.drawn")
        return time.monotonic() - start

    def evaluate(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def wait(self, expression, patience=20):
        """Waits until the expression is true."""
        until = time.monotonic() + patience
        while not self.evaluate(expression):
            if time.monotonic() > until:
                raise TimeoutError(f"never true: {expression}")
            time.sleep(0.02)

    def text(self, selector):
        return self.evaluate(f"document.querySelector({json.dumps(selector)}).innerText")

    def place(self, selector, x=0.5, y=0.5):
        """Returns the window coordinates of a point of an element, after scrolling to it. x, y: fractions of its width
        and height."""
        return self.evaluate(f"""(() => {{
            const element = document.querySelector({json.dumps(selector)});
            element.scrollIntoView({{block: "center"}});
            const box = element.getBoundingClientRect();
            return [box.left + box.width * {x}, box.top + box.height * {y}]; }})()""")

    def mouse(self, selector, x=0.5, y=0.5, click=False):
        left, top = self.place(selector, x, y)
        for kind in ("mouseMoved", *(("mousePressed", "mouseReleased") if click else ())):
            button = {"button": "left", "clickCount": 1} if kind != "mouseMoved" else {}
            self.call("Input.dispatchMouseEvent", type=kind, x=left, y=top, **button)

    def key(self, name, code):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=name, code=name, windowsVirtualKeyCode=code)

    def picture(self, path, whole=True):
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole, **(
            {"clip": {"x": 0, "y": 0, "scale": 1, "width": self.evaluate("innerWidth"),
                      "height": self.evaluate("document.documentElement.scrollHeight")}} if whole else {}))["data"]
        path.write_bytes(base64.b64decode(data))

    def complaints(self):
        """Returns everything that went wrong in the page: exceptions, console errors and warnings, log entries."""
        self.evaluate("1")  # receives pending events
        bad = []
        for event in self.events:
            method, about = event.get("method", ""), event.get("params", {})
            if method in ("Runtime.exceptionThrown", "Log.entryAdded") or (
                    method == "Runtime.consoleAPICalled" and about["type"] in ("error", "warning", "assert")):
                bad.append(json.dumps(about))
        return bad

    def requests(self):
        """Returns the addresses that the page requested, without those of data that it contains."""
        addresses = [event["params"]["request"]["url"] for event in self.events
                     if event.get("method") == "Network.requestWillBeSent"]
        return [address for address in addresses if not address.startswith("data:")]
