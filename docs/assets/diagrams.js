// A diagram shrinks to two thirds of its size at most and scrolls on a narrower page: its text stays readable on a phone.
const render = mermaid.render;
mermaid.render = async (...words) => {
  const drawn = await render.apply(mermaid, words);
  const least = (all, width) => `${all} min-width: ${Math.round(width * 0.66)}px;`;
  return { ...drawn, svg: drawn.svg.replace(/max-width: ([\d.]+)px;/, least) };
};
