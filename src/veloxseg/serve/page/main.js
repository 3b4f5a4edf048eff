// The page: a list of cases at the left, and in the middle the chosen one, as a card while it waits, in the viewer when it is done.

import { follow, openSession, request } from '/page/api.js';
import { drawCard, drawList, droppedFiles, element, upload } from '/page/cases.js';
import { KEYS, Viewer } from '/page/viewer.js';

const $ = (id) => document.getElementById(id);
const cases = new Map();
let chosen = null, models = [], viewer = null, shown = null;

function choose(id) {
  chosen = id;
  location.hash = id ? `case=${id}` : '';
  makeRoom();
  draw();
}

const narrow = matchMedia('(max-width: 1100px)');

// On a narrow screen the list would cover the images.
function makeRoom() { if (chosen && narrow.matches) $('cases').classList.add('away'); }

function draw() {
  drawList($('list'), cases, chosen, choose);
  const one = chosen ? cases.get(chosen) : null;
  const ready = one && one.state === 'done';
  $('viewer').hidden = $('side').hidden = !ready;
  $('card').hidden = Boolean(ready);
  $('heading').textContent = one ? one.title || one.id : '';
  document.title = one ? `${one.title || one.id} – VeloxSeg` : 'VeloxSeg';
  if (!ready) {
    viewer.close();
    shown = null;
    // a card in which the user is choosing is not taken away from under the hand
    const key = one ? `${one.id} ${one.state}` : 'none';
    if (!(['choose', 'incomplete', 'failed'].includes(one?.state) && $('card').dataset.key === key)) drawCard($('card'), one, models);
    $('card').dataset.key = key;
    return;
  }
  $('card').dataset.key = '';
  if (shown !== one.id) {
    shown = one.id;
    viewer.open(one).catch((error) => { $('heading').textContent = error.message; });
  } else viewer.refresh(one);
}

async function take(files) {
  $('uploading').hidden = false;
  try {
    choose(await upload(files, (share, text) => { $('upload-bar').value = share; $('upload-text').textContent = text; }));
    $('uploading').hidden = true;
  } catch (error) { $('upload-text').textContent = error.message; }
}

function connect() {
  $('files').onchange = () => { take([...$('files').files].map((file) => ({ file, name: file.name }))); $('files').value = ''; };
  $('folder').onchange = () => { take([...$('folder').files].map((file) => ({ file, name: file.webkitRelativePath || file.name }))); $('folder').value = ''; };
  $('folder-button').onclick = () => $('folder').click();
  $('drop').onkeydown = (event) => { if (event.key === 'Enter') $('files').click(); };
  window.ondragover = (event) => { event.preventDefault(); document.body.classList.add('over'); };
  window.ondragleave = () => document.body.classList.remove('over');
  window.ondrop = async (event) => { event.preventDefault(); document.body.classList.remove('over'); take(await droppedFiles(event.dataTransfer)); };
  $('menu').onclick = () => $('cases').classList.toggle('away');
  $('theme').onclick = () => setTheme(document.documentElement.dataset.theme === 'light' ? 'dark' : 'light');
  $('help-button').onclick = () => $('help').showModal();
  $('delete').onclick = async () => { if (chosen && confirm('Delete this case and all its files?')) await request('DELETE', `/api/cases/${chosen}`); };
  $('keys').replaceChildren(...KEYS.map(([keys, does]) => element('tr', {}, element('td', {}, element('kbd', { textContent: keys })), element('td', { textContent: does }))));
  window.addEventListener('keydown', (event) => { if (event.key === '?' && !/^(INPUT|TEXTAREA)$/.test(event.target.tagName)) $('help').showModal(); });
  window.addEventListener('hashchange', fromAddress);
  narrow.addEventListener('change', makeRoom);
  setInterval(soon, 60_000); // ages
}

function fromAddress() {
  const id = new URLSearchParams(location.hash.slice(1)).get('case');
  if (id !== chosen) { chosen = id; draw(); }
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  try { localStorage.setItem('theme', theme); } catch { /* a browser that keeps nothing */ }
}

function askForToken() {
  $('login').showModal();
  return new Promise((done) => { $('login').onclose = () => done($('token').value.trim()); });
}

let waiting = null;
const soon = () => { waiting ??= requestAnimationFrame(() => { waiting = null; draw(); }); };

let kept = null;
try { kept = localStorage.getItem('theme'); } catch { /* as above */ }
setTheme(kept || 'dark');
const wanted = new URLSearchParams(location.hash.slice(1)).get('case');
const offered = await openSession(askForToken);
models = offered.models;
viewer = window.veloxsegViewer = new Viewer(offered.send_to);
connect();
if (wanted) choose(wanted);
draw();
follow((one) => { cases.set(one.id, one); soon(); }, (id) => { cases.delete(id); if (chosen === id) chosen = null; soon(); },
  (on) => { $('link').classList.toggle('on', on); $('link').title = on ? 'Connected' : 'Not connected'; });
