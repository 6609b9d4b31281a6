// Search from the disk. Browsers start no worker for a page opened as file://, so the search script runs in a hidden
// frame instead. A site that is served over HTTP keeps the real Worker.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      const load = (src) => new Promise((done, failed) => {
        const script = inside.document.createElement("script");
        Object.assign(script, { src, onload: done, onerror: failed });
        inside.document.head.append(script);
      });
      inside.postMessage = (data) => queueMicrotask(() => this.dispatchEvent(new MessageEvent("message", { data })));
      inside.importScripts = (...urls) => urls.reduce((before, src) => before.then(() => load(src)), Promise.resolve());
      this.ready = load(`${url}`);
    }

    postMessage(data) {
      const inside = this.frame.contentWindow;
      this.ready.then(() => inside.dispatchEvent(new inside.MessageEvent("message", { data })));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
