// Calls of the console's own server.

let session = null;

export class ApiError extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

async function read(response) {
  let body = null;
  try {
    body = await response.json();
  } catch {
    throw new ApiError(response.status, "broken", `The console responded with status ${response.status} and no data.`);
  }
  if (!response.ok) throw new ApiError(response.status, body.error?.code ?? "broken", body.error?.message ?? "unknown error");
  return body;
}

async function call(path, options) {
  let response;
  try {
    response = await fetch(path, { credentials: "same-origin", ...options });
  } catch {
    throw new ApiError(0, "disconnected", "The console does not respond. Is its command still running?");
  }
  return read(response);
}

export const get = (path) => call(path, {});

export async function post(path, body) {
  return call(path, {
    method: "POST",
    headers: { "content-type": "application/json", "x-kinesis-sdk-token": (await getSession()).csrf },
    body: JSON.stringify(body),
  });
}

export async function getSession() {
  session ??= await get("/api/session");
  return session;
}

export const forgetSession = () => {
  session = null;
};

/** A query string of the given values. */
export const query = (values) => new URLSearchParams(values).toString();
