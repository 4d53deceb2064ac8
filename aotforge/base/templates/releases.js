if (navigator.clipboard) for (const button of document.querySelectorAll("button.copy")) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    try { await navigator.clipboard.writeText(button.dataset.copy); button.textContent = "copied"; }
    catch { button.textContent = "not allowed"; }
    setTimeout(() => { button.textContent = "copy SHA-256"; }, 1500);
  });
}
