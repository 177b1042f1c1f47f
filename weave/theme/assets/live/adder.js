// Tangled from book/workshop/weave-live.md
"use strict";
(() => {
const ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~";

const half = (bits) => {
  const exponent = (bits >> 10) & 31, fraction = bits & 1023;
  const size = exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : fraction * 2 ** -24;
  return bits & 0x8000 ? -size : size;
};

/** {arrays: [[name, shape]], numbers: text} -> name -> {shape, values}. */
const unpacked = ({ arrays, numbers }) => {
  const code = new Uint8Array(128);
  [...ALPHABET].forEach((letter, value) => (code[letter.charCodeAt(0)] = value));
  const bytes = new DataView(new ArrayBuffer((numbers.length / 5) * 4));
  for (let i = 0, at = 0; i < numbers.length; i += 5, at += 4) {
    let word = 0;
    for (let j = 0; j < 5; j++) word = word * 85 + code[numbers.charCodeAt(i + j)];
    bytes.setUint32(at, word);
  }
  const found = {};
  let at = 0;
  for (const [name, shape] of arrays) {
    const values = new Float32Array(shape.reduce((a, b) => a * b, 1));
    for (let i = 0; i < values.length; i++, at += 2) values[i] = half(bytes.getUint16(at, true));
    found[name] = { shape, values };
  }
  return found;
};

const row = (d, value) => Float64Array.from({ length: d }, (_, i) => value(i));
const added = (a, b) => a.map((x, t) => row(x.length, (i) => x[i] + b[t][i]));

const softmax = (scores) => {
  const most = Math.max(...scores);
  const raised = scores.map((s) => Math.exp(s - most)); // e**-Infinity is 0: a blocked key
  const total = raised.reduce((a, b) => a + b, 0);
  return raised.map((r) => r / total);
};

class Layers {
  constructor(arrays, heads) {
    this.arrays = arrays;
    this.heads = heads;
  }

  /** x W^T + b for each row. */
  linear(name, x) {
    const { shape: [n, d], values } = this.arrays[`${name}.weight`];
    const bias = this.arrays[`${name}.bias`].values;
    return x.map((from) => row(n, (i) => {
      let sum = bias[i];
      for (let j = 0; j < d; j++) sum += values[i * d + j] * from[j];
      return sum;
    }));
  }

  norm(name, x) {
    const scale = this.arrays[`${name}.weight`].values, shift = this.arrays[`${name}.bias`].values;
    return x.map((from) => {
      const d = from.length;
      const mean = from.reduce((a, b) => a + b, 0) / d;
      const variance = from.reduce((a, b) => a + (b - mean) ** 2, 0) / d;
      return row(d, (i) => ((from[i] - mean) / Math.sqrt(variance + 1e-5)) * scale[i] + shift[i]);
    });
  }

  feedForward(name, x) {
    const hidden = this.linear(`${name}.up`, x).map((from) => from.map((v) => Math.max(0, v)));
    return this.linear(`${name}.down`, hidden);
  }

  /** What each row of x reads from `memory`; the weights, [head][query][key], are pushed to `seen`. */
  attention(name, x, memory, causal, seen) {
    const q = this.linear(`${name}.q_proj`, x);
    const [k, v] = ["k_proj", "v_proj"].map((one) => this.linear(`${name}.${one}`, memory));
    const d = q[0].length, width = d / this.heads;
    const weights = Array.from({ length: this.heads }, (_, head) => q.map((from, t) =>
      softmax(k.map((key, s) => {
        if (causal && s > t) return -Infinity;
        let dot = 0;
        for (let i = head * width; i < (head + 1) * width; i++) dot += from[i] * key[i];
        return dot / Math.sqrt(width);
      }))));
    seen.push(weights);
    const context = q.map((_, t) => row(d, (i) =>
      v.reduce((sum, value, s) => sum + weights[Math.floor(i / width)][t][s] * value[i], 0)));
    return this.linear(`${name}.out_proj`, context);
  }
}

const PLUS = 10, PAD = 11, START = 12, END = 13, LONGEST = 5;

class Adder extends Layers {
  constructor({ heads, layers, model }) {
    super(unpacked(model), heads);
    this.depth = layers;
  }

  embed(name, tokens) {
    const { shape: [, d], values } = this.arrays[`${name}.weight`];
    return tokens.map((token, t) => row(d, (i) => {
      const angle = t * 10000 ** (-(i - (i % 2)) / d);
      return values[token * d + i] + Math.fround(i % 2 ? Math.cos(angle) : Math.sin(angle));
    }));
  }

  /** The memory of a source, and the weights of the encoder, [layer][head][query][key]. */
  encode(source) {
    const seen = [];
    let x = this.embed("source", source);
    for (let n = 0; n < this.depth; n++) {
      const name = `transformer.encoder.layers.${n}`;
      const own = this.norm(`${name}.norm1`, x);
      x = added(x, this.attention(`${name}.self_attention`, own, own, false, seen));
      x = added(x, this.feedForward(`${name}.feed_forward`, this.norm(`${name}.norm2`, x)));
    }
    return { memory: this.norm("transformer.encoder.norm", x), encoder: seen };
  }

  /** The logits after each token of the target so far, and the weights of the decoder. */
  decode(target, memory) {
    const decoder = [], cross = [];
    let x = this.embed("target", target);
    for (let n = 0; n < this.depth; n++) {
      const name = `transformer.decoder.layers.${n}`;
      const own = this.norm(`${name}.norm1`, x);
      x = added(x, this.attention(`${name}.self_attention`, own, own, true, decoder));
      x = added(x, this.attention(`${name}.cross_attention`, this.norm(`${name}.norm2`, x), memory, false, cross));
      x = added(x, this.feedForward(`${name}.feed_forward`, this.norm(`${name}.norm3`, x)));
    }
    return { logits: this.linear("output", this.norm("transformer.decoder.norm", x)), decoder, cross };
  }

  /** Up to `width` answers, best first: {tokens, logProb}. */
  write(source, width = 4) {
    const { memory } = this.encode(source);
    const found = [];
    let beams = [{ tokens: [START], logProb: 0 }];
    for (let t = 0; t < LONGEST && beams.length; t++) {
      const next = beams.flatMap((beam) => {
        const logits = this.decode(beam.tokens, memory).logits.at(-1);
        const most = Math.max(...logits);
        const total = most + Math.log(logits.reduce((sum, z) => sum + Math.exp(z - most), 0));
        return [...logits].map((z, token) => ({ tokens: [...beam.tokens, token], logProb: beam.logProb + z - total }))
          .filter((_, token) => ![PLUS, PAD, START].includes(token) && (token !== END || t > 0));
      });
      next.sort((a, b) => b.logProb - a.logProb); // stable, as numpy's is
      const kept = next.slice(0, width - found.length);
      found.push(...kept.filter((beam) => beam.tokens.at(-1) === END));
      beams = kept.filter((beam) => beam.tokens.at(-1) !== END);
    }
    const score = (beam) => beam.logProb / (beam.tokens.length - 1);
    return [...found, ...beams].sort((a, b) => score(b) - score(a))
      .map(({ tokens, logProb }) => ({ tokens: tokens.slice(1), logProb }));
  }
}

const TOKENS = "0123456789+";
const PLACES = ["thousands", "hundreds", "tens", "units"];
const WANTED = "Type two numbers of one to three digits with a plus between them, such as 123+456.";

const make = (tag, attributes = {}, ...children) => {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
};

const percent = (share) => `${Math.round(100 * share)} %`;

/** The tokens of a text like 7+15, or null. */
const read = (text) => {
  const found = /^\s*(\d{1,3})\s*\+\s*(\d{1,3})\s*$/.exec(text);
  return found && [...`${found[1].padStart(3, "0")}+${found[2].padStart(3, "0")}`].map((c) => TOKENS.indexOf(c));
};

/** A row of tiles; the larger a tile's share, the stronger its colour. */
const tiles = (characters, shares, label) => {
  const strip = make("div", { class: "tiles", role: "img", "aria-label": label });
  characters.forEach((character, i) => {
    const tile = make("span", {}, character);
    tile.style.setProperty("--share", `${100 * (shares[i] ?? 0)}%`);
    strip.append(tile);
  });
  return strip;
};

/** The characters with at least a tenth of the weight, in words. */
const told = (characters, shares) => {
  const order = characters.map((_, i) => i).filter((i) => shares[i] >= 0.1).sort((a, b) => shares[b] - shares[a]);
  return order.map((i) => `${characters[i] === "+" ? "plus" : characters[i]} (${percent(shares[i])})`).join(", ");
};
class TinyAdder extends HTMLElement {
  connectedCallback() {
    this.field = make("input", {
      type: "text", value: this.dataset.sum ?? "127+315", autocomplete: "off", spellcheck: "false", "aria-label": "A sum",
    });
    this.answer = make("span", { class: "answer", role: "group", "aria-label": "What the model writes" });
    this.said = make("p", { class: "told", role: "status" }, "Change the sum, then point at a digit of the answer to see what the model read while it wrote that digit.");
    this.view = make("div", { class: "view", hidden: "" });
    const form = make("form", {}, this.field, make("button", { type: "submit" }, "Add"), this.answer);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.ask();
    });
    this.field.addEventListener("input", () => this.ask());
    this.answer.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      const next = step && [...this.answer.children].at([...this.answer.children].indexOf(document.activeElement) + step);
      next?.focus();
    });
    this.prepend(form, this.said, this.view);
  }

  /** The model; the first call loads its numbers. */
  model() {
    return (this.loading ??= new Promise((resolve, reject) => {
      const script = make("script", { src: this.dataset.src });
      script.addEventListener("load", () => resolve(new Adder(window.liveData[this.dataset.name])));
      script.addEventListener("error", () => reject(new Error(`${this.dataset.src} cannot be loaded`)));
      document.head.append(script);
    }));
  }

  async ask() {
    const source = read(this.field.value), turn = (this.turn = (this.turn ?? 0) + 1);
    this.field.toggleAttribute("aria-invalid", !source);
    if (!source) {
      this.said.textContent = WANTED;
      return;
    }
    try {
      const model = await this.model();
      if (turn === this.turn) await this.show(model, source, turn);
    } catch (error) {
      this.said.textContent = String(error.message);
      this.loading = undefined;
    }
  }

  async show(model, source, turn) {
    const [best, second] = model.write(source);
    const { memory, encoder } = model.encode(source);
    const written = best.tokens.filter((token) => token < PLUS);
    const seen = { encoder, ...model.decode([START, ...written], memory) };
    this.querySelector(".figure-frame")?.setAttribute("hidden", "");
    const buttons = written.map((token, t) => {
      const button = make("button", { type: "button", "aria-pressed": "false" }, String(token));
      for (const event of ["focus", "pointerenter", "click"]) button.addEventListener(event, () => this.point(source, written, seen, t));
      return button;
    });
    const text = (beam) => beam.tokens.filter((token) => token < PLUS).join("");
    const sure = 100 * Math.exp(best.logProb);
    this.sure = `It is ${sure < 99.9 ? sure.toFixed(1) : "more than 99.9"} % sure of ${text(best)}` +
      (second ? `; its second choice is ${text(second)}.` : ".");
    this.answer.replaceChildren();
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    for (const [t, button] of buttons.entries()) {
      if (t && !still) await new Promise((resolve) => setTimeout(resolve, 180));
      if (turn !== this.turn) return; // another sum was typed meanwhile
      this.answer.append(button);
      this.point(source, written, seen, t);
    }
    this.dataset.shown = this.field.value;
  }

  /** Shows what the model reads while it writes digit t. */
  point(source, written, { encoder, decoder, cross }, t) {
    const from = source.map((token) => TOKENS[token]);
    const before = ["start", ...written.slice(0, t).map(String)];
    const all = cross.flat().map((head) => head[t]); // [layers x heads][key]
    const mean = from.map((_, i) => all.reduce((sum, head) => sum + head[i], 0) / all.length);
    [...this.answer.children].forEach((button, i) => button.setAttribute("aria-pressed", String(i === t)));
    const said = `To write the ${written[t]} (${PLACES[t] ?? "fifth digit"}) it reads ${told(from, mean)}.`;
    this.said.textContent = `${said} ${this.sure}`;
    const open = this.view.querySelector("details")?.open ?? false;
    const line = (weights, characters, query) => weights.map((layer, n) => make("div", { class: "heads" },
      ...layer.map((head, h) => tiles(characters, head[query], `layer ${n + 1}, head ${h + 1} reads ${told(characters, head[query])}`))));
    const whole = encoder.map((layer, n) => make("div", { class: "heads" }, ...layer.map((head, h) => make("div", {},
      ...head.map((shares, i) => tiles(from, shares, `layer ${n + 1}, head ${h + 1}: ${from[i]} reads ${told(from, shares)}`))))));
    this.view.hidden = false;
    this.view.replaceChildren(tiles(from, mean, said), make("details", open ? { open: "" } : {},
      make("summary", {}, "All layers and heads"),
      make("p", {}, `What each head of the decoder reads of the sum while it writes the ${written[t]}: a row for each layer, a strip for each head.`),
      ...line(cross, from, t),
      make("p", {}, "What it reads of its own beginning:"),
      ...line(decoder, before.map((one) => (one === "start" ? "·" : one)), t),
      make("p", {}, "How the encoder reads the sum. Each row is one character that reads:"),
      ...whole));
  }
}
customElements.define("tiny-adder", TinyAdder);
})();
