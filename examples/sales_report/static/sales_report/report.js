// The bar says when its job is over: then this page has something else to show.
document.addEventListener("job-over", (event) => {
  if (event.detail.status === "completed") location.reload();
});
