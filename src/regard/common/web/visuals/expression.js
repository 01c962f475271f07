// The language of masks, as far as positions need it: reads a text as Python would, and computes it as regard does.
//
// maskExpression(text, { tables, numbers }) returns { kind, at }: at(query, key) is the value, kind is "bool" or "int".
// A text that regard would refuse gives an error with what, given, expected, fix, and the place in the text, from … to.
// It knows query, key, True, False, whole numbers, tables[…], + - * // %, < <= > >= == !=, & | ^ ~, abs, minimum, maximum, where.
// As in Python: & and | bind more tightly than comparisons, and // and % round down.

const maskExpression = (() => {
  const LARGEST = Number.MAX_SAFE_INTEGER; // beyond it, numbers of the page are not exact
  const TOKEN = /\s*(?:(\d+(?:\.\d*)?|\.\d+)|([A-Za-z_]\w*)|(\/\/|\*\*|<=|>=|==|!=|<<|>>|&&|\|\||<>|[-+*/%<>&|^~()[\],.=!]|[≤≥≠×−∧∨¬]))/y;
  const WORDS = { and: "&", or: "|", not: "~", if: "where(condition, a, b)", else: "where(condition, a, b)", min: "minimum(a, b)", max: "maximum(a, b)" };
  const FOREIGN = { "&&": "&", "||": "|", "!": "~", "=": "==", "≤": "<=", "≥": ">=", "≠": "!=", "<>": "!=", "×": "*", "−": "-", "∧": "&", "∨": "|", "¬": "~" };
  const COMPARISONS = { "<": (a, b) => a < b, "<=": (a, b) => a <= b, ">": (a, b) => a > b, ">=": (a, b) => a >= b, "==": (a, b) => a === b, "!=": (a, b) => a !== b };
  const remainder = (a, b) => (b === 0 ? 0 : (a % b) + (a % b !== 0 && a % b < 0 !== b < 0 ? b : 0)); // has the sign of b; by 0 it is 0
  const ARITHMETIC = { "+": (a, b) => a + b, "-": (a, b) => a - b, "*": (a, b) => a * b, "%": remainder, "//": (a, b) => (b === 0 ? 0 : (a - remainder(a, b)) / b) };
  const LOGIC = { "|": (a, b) => a | b, "^": (a, b) => a ^ b, "&": (a, b) => a & b };
  const LEVELS = [["|"], ["^"], ["&"], ["+", "-"], ["*", "%", "//"]]; // the operators between two operands; later ones bind more tightly
  const FUNCTIONS = { abs: [1, Math.abs], minimum: [2, Math.min], maximum: [2, Math.max], where: [3, (c, x, y) => (c ? x : y)] };
  const CONDITION = "a condition, such as key <= query";

  function refused(what, given, expected, fix, { from, to }) {
    return Object.assign(new Error(what), { what, given, expected, fix, from, to });
  }

  function tokensOf(text) {
    const found = [];
    TOKEN.lastIndex = 0;
    while (text.slice(TOKEN.lastIndex).trim()) {
      const from = TOKEN.lastIndex;
      const match = TOKEN.exec(text);
      if (!match) {
        const at = from + text.slice(from).search(/\S/);
        throw refused("this character has no meaning here", text[at], "names, whole numbers, operators and parentheses", "leave it out", { from: at, to: at + 1 });
      }
      const [, number, name, symbol] = match;
      const place = { from: TOKEN.lastIndex - (number ?? name ?? symbol).length, to: TOKEN.lastIndex };
      if (symbol in FOREIGN) throw refused("an operator of another language", symbol, "an operator of Python", `write ${FOREIGN[symbol]}`, place);
      found.push({ kind: number ? "number" : name ? "name" : "symbol", text: number ?? name ?? symbol, ...place });
    }
    return found;
  }

  /** The shape of nested lists, and their numbers in a row. */
  function flattened(name, list) {
    const shape = [];
    for (let part = list; Array.isArray(part); part = part[0]) shape.push(part.length);
    const values = list.flat(Infinity);
    const kinds = new Set(values.map((value) => typeof value));
    if (kinds.size !== 1 || !values.every((value) => typeof value === "boolean" || Number.isSafeInteger(value))) throw new TypeError(`${name}: a table holds whole numbers, or booleans`);
    return { shape, values: values.map(Number), kind: kinds.has("boolean") ? "bool" : "int" };
  }

  /** The name that a reader may have meant. */
  function nearest(name, known) {
    const distance = (a, b) => {
      let row = [...Array(b.length + 1).keys()];
      for (let i = 1; i <= a.length; i++) row = row.reduce((next, _, j) => [...next, j ? Math.min(next[j - 1] + 1, row[j] + 1, row[j - 1] + (a[i - 1] !== b[j - 1])) : i], []);
      return row[b.length];
    };
    const [best] = [...known].sort((a, b) => distance(name, a) - distance(name, b));
    return best !== undefined && distance(name, best) <= 2 ? best : null;
  }

  return function read(text, { tables = {}, numbers = {} } = {}) {
    if (text.length > 500) throw refused("the text is too long", `${text.length} characters`, "at most 500", "leave parts out", { from: 0, to: text.length });
    const tokens = tokensOf(text);
    const known = Object.fromEntries(Object.entries(tables).map(([name, list]) => [name, flattened(name, list)]));
    let next = 0;
    const peek = (...texts) => next < tokens.length && tokens[next].kind === "symbol" && texts.includes(tokens[next].text);
    const here = () => tokens[next] ?? { text: "the end", from: text.length, to: text.length };
    const written = ({ from, to }) => text.slice(from, to);
    const words = (node) => `${written(node)}, which is ${node.kind === "bool" ? "a condition" : "a whole number"}`;

    // A node: kind, at(query, key), its place in the text; plain: a number that Python itself computes, not an expression.
    const node = (kind, at, from, to, plain = false) => ({ kind, at, from, to, plain });
    const counted = (f, place) => (q, k) => {
      const value = f(q, k);
      if (Math.abs(value) > LARGEST) throw refused("a number is too large to be exact here", written(place), `at most ${LARGEST}`, "use smaller numbers", place);
      return value;
    };

    function expect(symbol, opened) {
      if (peek(symbol)) return tokens[next++];
      const token = here();
      const what = `${symbol} is missing`;
      throw refused(what, token.text, `${symbol}, because of ${opened.text} before`, `close it with ${symbol}`, { from: opened.from, to: token.to });
    }

    function logical(symbol, left, right) {
      for (const side of [left, right]) {
        if (side.kind === "bool") continue;
        const fix = "put parentheses around comparisons: (a < b) & (c < d), because & and | bind more tightly than <, <= and ==";
        throw refused(`${symbol} needs conditions`, words(side), `${CONDITION}, on both sides`, fix, side);
      }
      return node("bool", (q, k) => LOGIC[symbol](left.at(q, k), right.at(q, k)), left.from, right.to, left.plain && right.plain);
    }

    function computed(symbol, left, right) {
      const place = { from: left.from, to: right.to };
      if ((symbol === "//" || symbol === "%") && right.plain && right.at(0, 0) === 0) throw refused("division by zero", written(place), "a divisor other than 0", "check the number", place);
      return node("int", counted((q, k) => ARITHMETIC[symbol](left.at(q, k), right.at(q, k)), place), place.from, place.to, left.plain && right.plain);
    }

    function operation(depth, level = 0) {
      if (level === LEVELS.length) return unary(depth);
      let left = operation(depth, level + 1);
      while (peek(...LEVELS[level])) {
        const symbol = tokens[next++].text;
        left = (symbol in LOGIC ? logical : computed)(symbol, left, operation(depth, level + 1));
      }
      return left;
    }

    function primary(depth) {
      if (depth > 60) throw refused("too many parentheses inside each other", `${depth}`, "at most 60", "leave some out", here());
      const token = here();
      if (next >= tokens.length) throw refused("the expression ends too early", text.trim() || "nothing", "a name, a number, or an expression in parentheses", "complete it", { from: 0, to: text.length });
      next++;
      if (token.kind === "number") {
        const value = Number(token.text);
        if (!/^\d+$/.test(token.text)) throw refused("positions are whole numbers", token.text, "a whole number", "use // to divide, which rounds down", token);
        if (value > LARGEST) throw refused("the number is too large", token.text, `at most ${LARGEST}`, "use a smaller one", token);
        if (/^0\d*[1-9]/.test(token.text)) throw refused("Python accepts no zeros before a number", token.text, `${value}`, `write ${value}`, token);
        return node("int", () => value, token.from, token.to, true);
      }
      if (token.kind === "symbol" && token.text === "(") {
        const inner = comparison(depth + 1);
        if (peek(",")) throw refused("a pair of parentheses holds one expression", ",", ")", "join conditions with & or |", here());
        const closed = expect(")", token);
        return { ...inner, from: token.from, to: closed.to };
      }
      if (token.kind === "name") return named(token, depth);
      const divides = token.text === "/" ? "use //" : "complete it, or leave the operator out";
      throw refused("something is missing before this", token.text, "a name, a number, or an expression in parentheses", divides, token);
    }

    function named(token, depth) {
      const name = token.text;
      if (name === "rg" && peek(".") && ["query", "key", "minimum", "maximum", "where"].includes(tokens[next + 1]?.text)) { // rg.key is key
        next += 2;
        return named({ ...tokens[next - 1], from: token.from }, depth);
      }
      if (Object.hasOwn(WORDS, name)) throw refused(`${name} has no meaning for positions`, name, "an operator or a function of expressions", `write ${WORDS[name]}`, token);
      if (Object.hasOwn(FUNCTIONS, name)) return call(token, depth);
      if (Object.hasOwn(known, name)) return element(token, known[name], depth);
      if (name === "query") return node("int", (q) => q, token.from, token.to);
      if (name === "key") return node("int", (_, k) => k, token.from, token.to);
      if (name === "True" || name === "False") return node("bool", () => Number(name === "True"), token.from, token.to, true);
      if (Object.hasOwn(numbers, name)) return node("int", () => numbers[name], token.from, token.to, true);
      const all = ["query", "key", ...Object.keys(known), ...Object.keys(numbers), ...Object.keys(FUNCTIONS)];
      const meant = nearest(name, [...all, "True", "False"]);
      throw refused("an unknown name", name, `one of ${all.join(", ")}`, meant ? `did you mean ${meant}?` : "use one of these", token);
    }

    function list(depth, opened, close) {
      const found = [];
      while (!peek(close)) {
        found.push(comparison(depth + 1));
        if (!peek(",")) break;
        next++;
      }
      return [found, expect(close, opened)];
    }

    function call(token, depth) {
      const [count, f] = FUNCTIONS[token.text];
      if (!peek("(")) throw refused("a function needs its arguments", token.text, `${token.text}(…)`, "add parentheses", token);
      const [parts, closed] = list(depth, tokens[next++], ")");
      const place = { from: token.from, to: closed.to };
      if (parts.length !== count) throw refused("wrong number of arguments", `${parts.length}`, `${count}`, `write ${token.text}(${["a", "a, b", "condition, a, b"][count - 1]})`, place);
      if (token.text === "where" && parts[0].kind !== "bool") throw refused("where needs a condition", words(parts[0]), CONDITION, "compare it with something", parts[0]);
      const plain = token.text === "abs" && parts[0].plain; // Python computes it
      return node("int", (q, k) => f(...parts.map((part) => part.at(q, k))), place.from, place.to, plain);
    }

    function element(token, { shape, values, kind }, depth) {
      const index = [];
      let closed = token;
      while (index.length < shape.length && peek("[")) {
        const [parts, end] = list(depth, tokens[next++], "]");
        index.push(...parts);
        closed = end;
      }
      const place = { from: token.from, to: closed.to };
      const example = `${token.text}[${["query", "key"].slice(0, shape.length).join(", ")}]`;
      if (index.length !== shape.length) throw refused("wrong number of indices", written(place), `${shape.length}, one for each axis`, `write ${example}`, place);
      for (const part of index) if (part.kind !== "int") throw refused("an index is not a whole number", words(part), "a position", "use where(condition, 1, 0) for a condition", part);
      const steps = shape.map((_, axis) => shape.slice(axis + 1).reduce((a, b) => a * b, 1));
      const place_ = index.map((part, axis) => {
        const clamped = (value) => Math.min(shape[axis] - 1, Math.max(0, value));
        if (!part.plain) return (q, k) => clamped(part.at(q, k)); // beyond the ends: the first or last element
        const value = part.at(0, 0);
        const fixed = clamped(value < 0 ? value + shape[axis] : value); // −1 itself is the last
        return () => fixed;
      });
      return node(kind, (q, k) => values[place_.reduce((sum, f, axis) => sum + f(q, k) * steps[axis], 0)], place.from, place.to);
    }

    function unary(depth) {
      if (!peek("-", "+", "~")) {
        const found = primary(depth);
        if (peek("**", "<<", ">>", "/")) throw refused("an operator that masks do not need", here().text, "+ - * // %", here().text === "/" ? "use //, which rounds down" : "write it with * and //", here());
        if (peek(".", "[", "(")) throw refused("this cannot follow here", `${written(found)}${here().text}`, "an operator", "leave it out", here());
        return found;
      }
      const token = tokens[next++];
      const inner = depth > 60 ? primary(depth) : unary(depth + 1);
      if (token.text === "~") {
        if (inner.kind !== "bool" || inner.plain) throw refused("~ needs a condition", words(inner), CONDITION, "put parentheses around the comparison: ~(a < b)", inner);
        return node("bool", (q, k) => 1 - inner.at(q, k), token.from, inner.to);
      }
      if (token.text === "+" && !inner.plain) return { ...inner, from: token.from }; // of a condition it is the condition
      return node("int", token.text === "-" ? (q, k) => -inner.at(q, k) : inner.at, token.from, inner.to, inner.plain);
    }

    function comparison(depth) {
      const compares = () => peek(...Object.keys(COMPARISONS));
      const left = operation(depth);
      if (!compares()) return left;
      const symbol = tokens[next++].text;
      const right = operation(depth);
      if (compares()) {
        const place = { from: left.from, to: here().to };
        throw refused("comparisons cannot be chained", `${written(place)} …`, "one comparison in each pair of parentheses", `write (${written({ from: left.from, to: right.to })}) & (${written(right)} ${here().text} …)`, place);
      }
      const f = COMPARISONS[symbol];
      return node("bool", (q, k) => Number(f(left.at(q, k), right.at(q, k))), left.from, right.to, left.plain && right.plain);
    }

    const found = comparison(0);
    if (next < tokens.length) {
      const token = here();
      if (token.kind === "name" && Object.hasOwn(WORDS, token.text)) throw refused(`${token.text} has no meaning for positions`, token.text, "an operator of expressions", `write ${WORDS[token.text]}, with parentheses around comparisons`, token);
      throw refused("this cannot follow here", token.text, "an operator, or the end", "leave it out, or join the parts with & or |", token);
    }
    if (found.kind !== "bool") throw refused("a mask is a condition", words(found), CONDITION, "compare it with something", found);
    return found;
  };
})();
