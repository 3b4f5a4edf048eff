// The server, as the page sees it: one function per request, errors with the server's own words, and live events.

export async function request(method, path, body, headers = {}) {
  const raw = body instanceof Blob;
  const response = await fetch(path, {
    method,
    headers: { ...(body !== undefined && !raw ? { 'content-type': 'application/json' } : {}), ...headers },
    body: body === undefined ? undefined : raw ? body : JSON.stringify(body),
    credentials: 'same-origin',
  });
  if (!response.ok) {
    const told = await response.json().catch(() => ({}));
    throw Object.assign(new Error(told.error || `status ${response.status}`), { status: response.status });
  }
  return response;
}

export const get = async (path) => (await request('GET', path)).json();
export const post = async (path, body) => (await request('POST', path, body)).json();
export const put = async (path, body, headers) => (await request('PUT', path, body, headers)).json();

// One file, and how many of its bytes are through; `fetch` cannot tell that.
export function sendFile(path, file, progress) {
  return new Promise((done, failed) => {
    const line = new XMLHttpRequest();
    line.responseType = 'json';
    line.upload.onprogress = (event) => progress(event.loaded);
    line.onload = () => (line.status < 300 ? done() : failed(new Error(line.response?.error || `status ${line.status}`)));
    line.onerror = () => failed(new Error('the connection was lost; try again'));
    line.open('PUT', path);
    line.send(file.slice()); // a plain blob: without a type that the server would have to judge
  });
}

export async function numbers(path, Kind) {
  return new Kind(await (await request('GET', path)).arrayBuffer());
}

// The token comes in the address after `#`, which no server ever sees; it is exchanged for a cookie and forgotten.
export async function openSession(ask) {
  let token = new URLSearchParams(location.hash.slice(1)).get('token');
  if (token) history.replaceState(null, '', location.pathname);
  for (;;) {
    try {
      if (token) await request('POST', '/api/session', undefined, { authorization: `Bearer ${token}` });
      return await get('/api/models');
    } catch (error) {
      if (error.status !== 401) throw error;
      token = await ask();
    }
  }
}

export function follow(onCase, onRemoved, onLink) {
  const source = new EventSource('/api/events');
  source.addEventListener('case', (event) => onCase(JSON.parse(event.data)));
  source.addEventListener('removed', (event) => onRemoved(JSON.parse(event.data).id));
  source.onopen = () => onLink(true);
  source.onerror = () => onLink(false);
}
