"""What is cut off on a page, sticks out of its window, or lies over other text: by boxes that the browser measures."""

# Text that ends in an ellipsis, text for screen readers only, and what scrolls are as they should be.
CUT_OFF = """() => {
    const found = new Set();
    const root = document.documentElement;
    if (root.scrollWidth > innerWidth) found.add(`the page is ${root.scrollWidth} wide`);
    const styles = new Map();
    const style = (node) => styles.get(node) ?? styles.set(node, getComputedStyle(node)).get(node);
    const clips = (node) => style(node).overflowX !== "visible" || style(node).overflowY !== "visible";
    const within = (node) => node.parentElement && (clips(node.parentElement) || within(node.parentElement));
    const named = (node) => `${node.tagName}#${node.id}.${node.className}: ${node.textContent.slice(0, 40)}`;
    const hides = (kind) => kind === "hidden" || kind === "clip";
    const shown = [...document.body.querySelectorAll("*")].filter((node) =>
        node.checkVisibility({ visibilityProperty: true }) && !node.closest(".unseen, #status, option, script"));
    for (const node of shown) {
        const { left, right, width, height } = node.getBoundingClientRect();
        const { overflowX, overflowY, textOverflow } = style(node);
        if (!width || !height) continue;
        if ((right > innerWidth + 1 || left < -1) && !within(node)) found.add(`sticks out: ${named(node)}`);
        if (textOverflow === "ellipsis") continue;
        const alone = hides(overflowX) || node.matches("button, select");
        if (alone && node.scrollWidth > node.clientWidth + 1) found.add(`cut off: ${named(node)}`);
        if (hides(overflowY) && node.scrollHeight > node.clientHeight + 1) found.add(`cut off below: ${named(node)}`);
    }
    // The visible boxes of all texts; the letters of tokens may join.
    const boxes = [];
    for (const node of shown) {
        if (node.closest(".token")) continue;
        for (const child of node.childNodes) {
            if (child.nodeType !== Node.TEXT_NODE || !child.textContent.trim()) continue;
            const range = document.createRange();
            range.selectNodeContents(child);
            for (const box of range.getClientRects()) {
                let { left, right, top, bottom } = box;
                for (let around = node; around !== document.body; around = around.parentElement) {
                    if (!clips(around)) continue;
                    const edge = around.getBoundingClientRect();
                    [left, right] = [Math.max(left, edge.left), Math.min(right, edge.right)];
                    [top, bottom] = [Math.max(top, edge.top), Math.min(bottom, edge.bottom)];
                }
                if (right - left > 1 && bottom - top > 1) boxes.push({ node, left, right, top, bottom });
            }
        }
    }
    boxes.sort((a, b) => a.top - b.top);
    boxes.forEach((a, i) => {
        for (let j = i + 1; j < boxes.length && boxes[j].top < a.bottom - 4; j++) {
            const b = boxes[j];
            if (a.node.contains(b.node) || b.node.contains(a.node)) continue;
            const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
            const high = Math.min(a.bottom, b.bottom) - b.top;
            if (wide > 1.5 && high > 4) found.add(`overlap: ${named(a.node)} / ${named(b.node)}`);
        }
    });
    return [...found];
}"""
