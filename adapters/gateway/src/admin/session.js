// Signing in and out. The token goes into one request and is forgotten; what lets the browser in again is a cookie that no script can read.

// `{access, node_id}`; undefined if the node does not answer.
export async function session() {
  try {
    const response = await fetch("/admin/session");
    return response.ok ? await response.json() : undefined;
  } catch {
    return undefined;
  }
}

// Answers why not, or undefined.
export async function signIn(token) {
  try {
    const response = await fetch("/admin/login", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ token }),
    });
    if (response.ok) return undefined;
    if (response.status === 401) return "That is not the admin token of this node.";
    return (await response.json()).detail;
  } catch {
    return "This node does not answer.";
  }
}

export async function signOut() {
  // If the node is gone, the cookie is worth something until it ends; there is nobody else to ask.
  await fetch("/admin/logout", { method: "POST" }).catch(() => {});
}
