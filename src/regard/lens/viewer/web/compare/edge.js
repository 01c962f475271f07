// The movable edge between two overlaid maps, as a slider over the plot.

class Edge {
  /** redraw(): draws the plot again; where(): the sizes of the plot. */
  constructor(holder, redraw, where) {
    Object.assign(this, { at: 0.5, where });
    const slider = { role: "slider", ariaLabel: "Edge between the first run and the second", ariaValueMin: "0", ariaValueMax: "100" };
    this.slider = element("div", undefined, { className: "edge", tabIndex: 0, ...slider }, element("span", "first"), element("span", "second"));
    holder.append(this.slider);
    const to = (edge) => {
      this.at = clamp(edge, 0, 1);
      redraw();
    };
    this.slider.addEventListener("pointerdown", (event) => this.slider.setPointerCapture(event.pointerId));
    this.slider.addEventListener("pointermove", (event) => {
      if (this.slider.hasPointerCapture(event.pointerId)) to((event.clientX - holder.getBoundingClientRect().left - where().left) / where().width);
    });
    this.slider.addEventListener("keydown", (event) => {
      const next = stepOf(event, { ArrowLeft: this.at - 0.02, ArrowRight: this.at + 0.02, PageUp: this.at + 0.2, PageDown: this.at - 0.2, Home: 0, End: 1 });
      if (next === undefined) return;
      event.stopPropagation();
      to(next);
    });
  }

  draw() {
    const { left, top, width, height } = this.where();
    Object.assign(this.slider.style, { left: `${left + this.at * width}px`, top: `${top}px`, height: `${height}px` });
    const share = Math.round(100 * this.at);
    this.slider.setAttribute("aria-valuenow", share);
    this.slider.setAttribute("aria-valuetext", `${share} % of the width shows the first run`);
  }
}
