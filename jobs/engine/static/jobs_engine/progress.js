// Keeps the bars of jobs true: by the server's stream, and where there is none by asking each second.

// Over HTTP/1.1 a browser opens six connections to a host, and the page needs some of them itself.
const STREAMS = 3;
const FAILURES = 3;
const SECOND = 1000;
const LONGEST_WAIT = 15 * SECOND;

let streams = 0;

class JobProgress extends HTMLElement {
  #source = null;
  #timer = null;
  #asking = null;
  #failures = 0;
  #wait = SECOND;
  // What nobody sees is not followed; whoever comes back is told the truth at once.
  #seen = () => { this.#stop(); if (!document.hidden) this.#follow(); };

  connectedCallback() {
    document.addEventListener("visibilitychange", this.#seen);
    this.#seen();
  }

  disconnectedCallback() {
    document.removeEventListener("visibilitychange", this.#seen);
    this.#stop();
  }

  get #over() {
    return !this.dataset.state || this.querySelector(".job-progress-state[data-over]") !== null;
  }

  #follow() {
    if (this.#over) return;
    if (streams < STREAMS && this.#failures < FAILURES) this.#listen();
    else this.#ask();
  }

  #stop() {
    if (this.#source) {
      this.#source.close();
      this.#source = null;
      streams -= 1;
    }
    clearTimeout(this.#timer);
    this.#asking?.abort();
  }

  #listen() {
    streams += 1;
    this.#source = new EventSource(this.dataset.stream);
    for (const name of ["state", "over"]) {
      this.#source.addEventListener(name, (event) => {
        this.#failures = 0;
        this.#show(event.data);
      });
    }
    this.#source.addEventListener("error", () => {
      // A server that has no stream says so by an answer after which the browser gives up.
      const refused = this.#source.readyState === EventSource.CLOSED;
      this.#failures = refused ? FAILURES : this.#failures + 1;
      if (!refused) this.#tell("lost");
      if (this.#failures < FAILURES) return;
      this.#stop();
      this.#follow();
    });
  }

  async #ask() {
    this.#asking = new AbortController();
    const { signal } = this.#asking;
    try {
      const answer = await fetch(this.dataset.state, { signal });
      if (answer.status === 404) return this.#tell("stale");
      if (!answer.ok) throw new Error(answer.statusText);
      const html = await answer.text();
      this.#wait = SECOND;
      this.#show(html);
    } catch {
      if (signal.aborted) return;
      this.#wait = Math.min(LONGEST_WAIT, this.#wait * 2);
      this.#tell("lost");
    }
    if (!this.#over) this.#timer = setTimeout(() => this.#ask(), this.#wait);
  }

  #show(html) {
    const fresh = new DOMParser().parseFromString(html, "text/html").querySelector(".job-progress-state");
    const shown = this.querySelector(".job-progress-state");
    if (!fresh || !shown) return;
    fresh.querySelector("progress")?.setAttribute("aria-label", this.dataset.label);
    shown.replaceWith(document.adoptNode(fresh));
    this.#tell("");
    const said = this.querySelector(".job-progress-said");
    if (said && said.textContent !== fresh.dataset.said) said.textContent = fresh.dataset.said;
    if (!this.#over) return;
    this.#stop();
    const detail = { status: fresh.dataset.status };
    this.dispatchEvent(new CustomEvent("job-over", { bubbles: true, detail }));
  }

  // Which of the prepared sentences is to be seen, if any.
  #tell(what) {
    for (const name of ["lost", "stale"]) {
      const note = this.querySelector(`[data-${name}]`);
      if (note) note.hidden = name !== what;
    }
  }
}

if (!customElements.get("job-progress")) customElements.define("job-progress", JobProgress);
