"""Chromium without a window, driven through its DevTools protocol over a pipe.

    with Browser("chromium") as browser:
        page = browser.open("file:///page.html", width=1280, height=900, dark=False)
        page.value("document.title")
        page.move_to("#source span")

Needs nothing but Python's standard library and the browser.
"""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time


class BrowserError(Exception):
    """The browser ended, did not answer in time, or refused a command."""


class Browser:
    """A browser process with a profile of its own, which is removed in the end."""

    def __init__(self, program, seconds=60):
        self.seconds = seconds
        self.profile = tempfile.mkdtemp(prefix="srjit-browser-")
        to_browser, self.write_end = os.pipe()
        self.read_end, from_browser = os.pipe()
        self.buffer = b""
        self.number = 0
        self.events = []
        arguments = [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                     "--disable-background-networking", "--hide-scrollbars", f"--user-data-dir={self.profile}",
                     "--remote-debugging-pipe", "about:blank"]
        # The browser reads descriptor 3 and writes descriptor 4.
        command = ["/bin/sh", "-c", f'exec "$@" 3<&{to_browser} 4>&{from_browser}', "sh", *arguments]
        self.process = subprocess.Popen(command, pass_fds=(to_browser, from_browser), stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Ends the process and removes its profile."""
        try:
            self.call("Browser.close")
            self.process.wait(10)
        except (BrowserError, OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        os.close(self.write_end)
        os.close(self.read_end)
        shutil.rmtree(self.profile, ignore_errors=True)

    def call(self, method, session=None, **parameters):
        """The result of a command. Events that come meanwhile are kept in `events`."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self.write_end, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + self.seconds
        while True:
            answer = self._receive(end)
            if answer.get("id") == message["id"]:
                if "error" in answer:
                    raise BrowserError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self.events.append(answer)

    def _receive(self, end):
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.read_end], [], [], max(0, end - time.monotonic()))
            part = os.read(self.read_end, 1 << 20) if ready else b""
            if not part:
                raise BrowserError("the browser has ended" if ready else f"no answer in {self.seconds} seconds")
            self.buffer += part
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def open(self, url, width=1280, height=900, dark=False):
        """A new page, loaded."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        return Page(self, session, url, width, height, dark)


class Page:
    """One page. Positions and sizes are CSS pixels."""

    def __init__(self, browser, session, url, width, height, dark):
        self.browser, self.session = browser, session
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)  # as if each page were in front
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = "dark" if dark else "light"
        self.call("Emulation.setEmulatedMedia", media="", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("Page.navigate", url=url)
        end = time.monotonic() + browser.seconds
        while self.value("document.readyState") != "complete" or self.value("location.href") == "about:blank":
            if time.monotonic() > end:
                raise BrowserError(f"{url} does not load")
            time.sleep(0.05)

    def call(self, method, **parameters):
        return self.browser.call(method, self.session, **parameters)

    def value(self, script):
        """The value of an expression of JavaScript."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        if "exceptionDetails" in result:
            raise BrowserError(f"{script}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def count(self, selector):
        """How many elements match."""
        return self.value(f"document.querySelectorAll({json.dumps(selector)}).length")

    def texts(self, selector):
        """The texts of the elements that match."""
        return self.value(f"[...document.querySelectorAll({json.dumps(selector)})].map((e) => e.textContent)")

    def complaints(self):
        """Exceptions, messages of the console, and what the log has, as texts."""
        self.value("0")  # earlier events come before the answer
        texts = []
        for event in self.browser.events:
            if event.get("sessionId") != self.session:
                continue
            if event["method"] in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"):
                texts.append(json.dumps(event["params"]))
        return texts

    def requests(self):
        """The addresses that the page asked for."""
        self.value("0")
        return [event["params"]["request"]["url"] for event in self.browser.events
                if event.get("sessionId") == self.session and event["method"] == "Network.requestWillBeSent"]

    def move_to(self, selector, index=0):
        """Moves the mouse to the beginning of what can be seen of an element, which is scrolled into view."""
        place = self.value(f"""(() => {{
            const element = document.querySelectorAll({json.dumps(selector)})[{index}];
            element.scrollIntoView({{block: "center", inline: "nearest"}});
            const box = element.getBoundingClientRect(), left = element.parentElement.getBoundingClientRect().left;
            return [Math.max(box.left, left) + Math.min(box.width / 2, 12), box.top + box.height / 2];
        }})()""")
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=place[0], y=place[1])
        return place

    def click(self, selector, index=0):
        x, y = self.move_to(selector, index)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def press(self, key):
        """Presses and releases a key: its name, as "Escape", or a character."""
        text = {"text": key} if len(key) == 1 else {}
        if key == "Enter":
            text = {"text": "\r"}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def screenshot(self, path, whole=False):
        parameters = {"format": "png"}
        if whole:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            parameters |= {"captureBeyondViewport": True, "clip": {**size, "scale": 1}}
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.call("Page.captureScreenshot", **parameters)["data"]))

    def pdf(self, path):
        """The page as it is printed."""
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.call("Page.printToPDF", printBackground=True)["data"]))
