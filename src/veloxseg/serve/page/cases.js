// The list of cases, new ones by dropping files, and the card that says what a case waits for.

import { post, put, request, sendFile } from '/page/api.js';

const element = (name, values = {}, ...children) => {
  const made = Object.assign(document.createElement(name), values);
  made.append(...children);
  return made;
};
export { element };

const WORDS = { receiving: 'receiving', reading: 'reading', choose: 'your choice', incomplete: 'incomplete', waiting: 'in line', running: 'running', done: 'done', failed: 'failed' };

export function age(seconds) {
  const minutes = (Date.now() / 1000 - seconds) / 60;
  if (minutes < 1) return 'just now';
  if (minutes < 60) return `${Math.floor(minutes)} min ago`;
  return minutes < 1440 ? `${Math.floor(minutes / 60)} h ago` : `${Math.floor(minutes / 1440)} d ago`;
}

export function drawList(list, cases, chosen, choose) {
  const items = [...cases.values()].sort((a, b) => b.created - a.created).map((one) => {
    const button = element('button', { onclick: () => choose(one.id), className: one.id === chosen ? 'chosen' : '' },
      element('div', { className: 'title' }, element('span', { textContent: one.title || one.id }), element('span', { className: `state ${one.state}`, textContent: stateText(one) })),
      element('div', { className: 'under', textContent: `${age(one.created)}${one.model ? ` · ${one.model}` : ''}${one.source === 'dicom' ? ' · DICOM' : ''}${one.revision ? ' · edited' : ''}` }));
    button.dataset.id = one.id;
    if (one.id === chosen) button.setAttribute('aria-current', 'true');
    return element('li', {}, button);
  });
  list.replaceChildren(...items);
}

function stateText(one) {
  if (one.state === 'running' && one.queue?.total) return `${Math.floor((100 * one.queue.done) / one.queue.total)} %`;
  return WORDS[one.state] || one.state;
}

const seconds = (value) => (value === null || value === undefined ? '' : value < 90 ? `about ${Math.max(1, Math.round(value))} s` : `about ${Math.round(value / 60)} min`);

// What a case that has no mask yet is doing, or needs.
export function drawCard(card, one, models) {
  if (!one) { card.replaceChildren(welcome(models)); return; }
  const parts = [element('h2', { textContent: one.title || one.id })];
  if (one.message) parts.push(element('p', { className: ['failed', 'incomplete'].includes(one.state) ? 'problem' : '', textContent: one.message }));
  if (one.state === 'waiting') {
    const first = one.queue.position === 0;
    parts.push(element('p', { textContent: first ? 'Next in line.' : `${one.queue.position} before it in line.` }), element('p', { className: 'quiet', textContent: seconds(one.queue.seconds_left) }));
  } else if (one.state === 'running') {
    const { done, total, seconds_left: left } = one.queue || {};
    parts.push(element('progress', total ? { max: total, value: done } : {}), element('p', { className: 'quiet', textContent: total ? `window ${done} of ${total} · ${seconds(left)} left` : 'reading the scans' }));
  } else if (one.state === 'reading' || one.state === 'receiving') parts.push(element('progress'), element('p', { className: 'quiet', textContent: WORDS[one.state] }));
  const open = one.state === 'choose' || one.state === 'incomplete' || (one.state === 'failed' && one.found.length); // another choice may do
  if (open) parts.push(...one.warnings.map((text) => element('p', { className: 'warning', textContent: text })), chooser(one, models));
  const remove = element('button', { className: 'danger', textContent: 'Delete', onclick: () => request('DELETE', `/api/cases/${one.id}`) });
  if (['failed', 'incomplete', 'choose', 'receiving'].includes(one.state)) parts.push(element('div', { className: 'row' }, remove));
  card.replaceChildren(...parts);
}

function welcome(models) {
  const offered = models.map((model) => `${model.name} (${model.modalities.join(', ')})`).join('; ');
  return element('div', {}, element('h2', { textContent: 'Drop a study to begin' }),
    element('p', { textContent: 'NIfTI, NRRD, MetaImage or DICOM, as files, a folder or a zip. Everything stays on this server.' }),
    element('p', { className: 'quiet', textContent: `Model: ${offered}` }));
}

// Which scan is which: what was recognised is filled in, and nothing starts before the user says so.
function chooser(one, models) {
  const box = element('div'), scans = one.found.filter((found) => found.role !== 'mask' && !found.problem);
  const model = element('select', { ariaLabel: 'Model' }, ...models.map((m) => element('option', { value: m.name, textContent: m.name, selected: m.name === one.model })));
  const rows = element('tbody'), said = element('p', { className: 'problem' });
  const draw = () => {
    const wanted = models.find((m) => m.name === model.value);
    rows.replaceChildren(...wanted.modalities.map((modality) => {
      const pick = element('select', { name: modality, ariaLabel: modality }, element('option', { value: '', textContent: wanted.may_miss.includes(modality) ? 'none' : 'choose …' }),
        ...scans.map((scan) => element('option', { value: scan.key, textContent: `${scan.text}${scan.corrected ? ', corrected' : ''}`, selected: one.chosen[modality] === scan.key })));
      return element('tr', {}, element('td', { textContent: modality.toUpperCase() }), element('td', {}, pick));
    }));
  };
  model.onchange = draw;
  draw();
  const start = element('button', { className: 'main', textContent: 'Segment', onclick: async () => {
    const picked = Object.fromEntries([...rows.querySelectorAll('select')].filter((s) => s.value).map((s) => [s.name, s.value]));
    try { await put(`/api/cases/${one.id}/choice`, { model: model.value, scans: picked }); } catch (error) { said.textContent = error.message; }
  } });
  const broken = one.found.filter((found) => found.problem).map((found) => element('p', { className: 'problem', textContent: `${found.text}: ${found.problem}` }));
  box.append(...(models.length > 1 ? [model] : []), element('table', {}, rows), ...broken, said, element('div', { className: 'row' }, start));
  return box;
}

// All files below what was dropped, with their paths.
export async function droppedFiles(transfer) {
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean), found = [];
  if (!entries.length) return [...transfer.files].map((file) => ({ file, name: file.name }));
  const walk = async (entry) => {
    if (entry.isFile) found.push({ file: await new Promise((yes, no) => entry.file(yes, no)), name: entry.fullPath.replace(/^\//, '') });
    else {
      const reader = entry.createReader();
      for (;;) {
        const some = await new Promise((yes, no) => reader.readEntries(yes, no));
        if (!some.length) break;
        for (const child of some) await walk(child);
      }
    }
  };
  for (const entry of entries) await walk(entry);
  return found;
}

const AT_ONCE = 4;

export async function upload(files, progress) {
  const wanted = files.filter(({ file, name }) => file.size && !name.split('/').pop().startsWith('.'));
  if (!wanted.length) throw new Error('there is no file in it');
  const title = wanted[0].name.includes('/') ? wanted[0].name.split('/')[0] : wanted[0].name.replace(/\.(nii\.gz|nii|nrrd|mha|zip|dcm)$/i, '');
  const one = await post('/api/cases', { title, confirm: true });
  const total = wanted.reduce((sum, { file }) => sum + file.size, 0), waiting = [...wanted];
  const sent = new Map(), say = () => {
    const share = Math.min([...sent.values()].reduce((sum, bytes) => sum + bytes, 0) / total, 1);
    progress(share, `${Math.floor(100 * share)} % of ${wanted.length === 1 ? wanted[0].name : `${wanted.length} files`}`);
  };
  const send = async () => {
    for (let next = waiting.shift(); next; next = waiting.shift()) {
      const { file, name } = next, path = name.split('/').map(encodeURIComponent).join('/');
      await sendFile(`/api/cases/${one.id}/files/${path}`, file, (bytes) => { sent.set(next, bytes); say(); });
      sent.set(next, file.size);
      say();
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, send));
  await post(`/api/cases/${one.id}/start`, {});
  return one.id;
}
