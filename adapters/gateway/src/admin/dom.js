// Elements, made without markup: no text of a node can ever become any.

const SVG = "http://www.w3.org/2000/svg";

export function element(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

export function drawn(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

// Only if it differs: what is selected stays selected, and screen readers hear of changes alone.
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// Brings a list of children into order without moving what is in place, so that focus and open folds survive.
export function arrange(parent, children) {
  for (const child of [...parent.children]) {
    if (!children.includes(child)) child.remove();
  }
  children.forEach((child, index) => {
    if (parent.children[index] !== child) parent.insertBefore(child, parent.children[index] ?? null);
  });
}

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}
