// Files of a table's field: their text goes into the form, and so into the address. Without scripts
// it is pasted.

for (const label of document.querySelectorAll("[data-files-into]")) {
  const files = label.querySelector("input");
  label.hidden = false;
  files.addEventListener("change", async () => {
    const fields = () => [...label.parentNode.querySelectorAll("textarea")];
    for (const file of files.files) {
      let field = fields().find((each) => each.value.trim() === "");
      if (!field) {
        field = fields()[0].cloneNode(true);
        label.before(field);
      }
      field.value = await file.text();
    }
    files.value = "";
  });
}
