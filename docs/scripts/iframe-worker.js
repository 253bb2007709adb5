/*
 * Lets the site's search work when a page is opened from a disk. A browser starts no worker from a file, so on a page whose address begins
 * with file:// the search's worker runs in a hidden frame of the page instead. It gets and sends the same messages. On a server, nothing changes.
 *
 * mkdocs.yml names this file in `extra.polyfills`, so the plugin `offline` of Material does not add one of its own from another host: it looks
 * for "iframe-worker" in the name. importScripts is missing, which the worker calls only for languages other than English.
 */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.documentElement.append(this.frame);
      // Firefox replaces the first, empty document of a frame later, unless another has been written.
      const inside = this.frame.contentDocument;
      inside.open();
      inside.write("<!doctype html><title>search</title>");
      inside.close();
      const scope = this.frame.contentWindow;
      scope.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      // Messages wait until the script runs.
      this.loaded = new Promise((resolve, reject) => {
        const script = inside.createElement("script");
        script.onload = () => resolve(scope);
        script.onerror = () => reject(new Error(`cannot load ${url}`));
        script.src = new URL(url, document.baseURI);
        inside.head.append(script);
      });
    }

    postMessage(data) {
      this.loaded.then((scope) => scope.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
