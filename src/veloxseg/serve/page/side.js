// The panel beside the planes: lesions with their numbers, comparison, warnings, downloads, sending, facts of the case.

import { request } from '/page/api.js';
import { age, element } from '/page/cases.js';
import { VERDICTS } from '/page/planes.js';

const $ = (id) => document.getElementById(id);
const COLUMNS = [['volume_ml', 'mL'], ['suv_max', 'SUVmax'], ['suv_mean', 'mean'], ['suv_peak', 'peak'], ['tlg', 'TLG']];
const FILES = { 'mask.nii.gz': 'NIfTI', 'seg.dcm': 'DICOM SEG', 'sr.dcm': 'DICOM SR', 'lesions.csv': 'CSV', 'statistics.json': 'JSON', 'report.html': 'Report' };

// All of it, as a case is now.
export function drawSide(viewer, one) {
  const { view } = viewer.volume;
  $('compare-box').hidden = !view.reference;
  $('saving').textContent = one.working ? 'measuring …' : '';
  $('undo').disabled = $('revert').disabled = !viewer.edits.length;
  drawTable(viewer);
  drawCompare(view);
  const notes = [...one.warnings, ...(one.problem ? [one.problem] : [])];
  $('warnings').replaceChildren(...(notes.length ? [element('h2', { textContent: 'Warnings' }), element('ul', {}, ...notes.map((text) => element('li', { textContent: text })))] : []));
  const dicom = one.found.some((found) => found.dicom && Object.values(one.chosen).includes(found.key));
  $('downloads').replaceChildren(...Object.entries(FILES).filter(([name]) => dicom || !name.endsWith('.dcm')).map(([name, text]) =>
    element('a', { href: `/api/cases/${one.id}/results/${name}`, textContent: text, target: name === 'report.html' ? '_blank' : '', rel: 'noopener' })));
  const facts = { State: one.revision ? `revision ${one.revision}` : 'as the model made it', Model: one.model, Received: age(one.created), Scans: Object.keys(one.chosen).join(', ').toUpperCase(), Id: one.id };
  $('facts').replaceChildren(...Object.entries(facts).flatMap(([name, text]) => [element('dt', { textContent: name }), element('dd', { textContent: text })]));
  const sent = one.outbox.map((o) => element('p', { className: 'quiet', textContent: `${o.target}: ${o.state}${o.message ? `, ${o.message}` : ''}` }));
  const button = element('button', { className: 'wide', textContent: `Send to ${viewer.sendTo.join(', ')}`, onclick: () => request('POST', `/api/cases/${one.id}/send`).catch((error) => { $('saving').textContent = error.message; }) });
  $('sending').replaceChildren(...(viewer.sendTo.length && dicom ? [element('h2', { textContent: 'PACS' }), button, ...sent] : []));
}

// The lesions with their numbers, and the totals; a click jumps to one.
export function drawTable(viewer) {
  const { view } = viewer.volume, uptake = Boolean(view.statistics.uptake), columns = uptake ? COLUMNS : COLUMNS.slice(0, 1), single = Object.keys(view.labels).length === 1;
  const text = (value) => (value === null || value === undefined ? '' : value > 0 && value < 0.005 ? '<0.01' : value.toFixed(value >= 100 ? 1 : 2));
  const head = element('thead', {}, element('tr', {}, element('th'), ...columns.map(([, title]) => element('th', { textContent: title }))));
  const colour = Object.fromEntries(Object.values(view.labels).map((l) => [l.name, l.colour]));
  const rows = viewer.lesions().map((lesion, index) => {
    const swatch = element('span', { className: 'swatch' });
    swatch.style.background = `rgb(${colour[lesion.name]})`;
    const row = element('tr', { tabIndex: 0, className: index === viewer.chosen ? 'chosen' : '', onclick: () => viewer.jump(index) },
      element('td', { title: lesion.name }, swatch, single ? `${lesion.number}` : `${lesion.name} ${lesion.number}`), ...columns.map(([key]) => element('td', { textContent: text(lesion[key]) })));
    row.onkeydown = (event) => { if (event.key === 'Enter') viewer.jump(index); };
    return row;
  });
  const totals = Object.entries(view.statistics.labels).map(([name, label]) => element('tr', {}, element('td', { title: name, textContent: single ? `all ${label.count}` : `${name}: ${label.count}` }), ...columns.map(([key]) => element('td', { textContent: text(label[key]) }))));
  $('lesions').replaceChildren(head, element('tbody', {}, ...rows), element('tfoot', {}, ...totals));
}

function drawCompare({ compare }) {
  if (!compare) { $('compare').replaceChildren(); return; }
  const lines = Object.entries(compare.labels).flatMap(([name, score]) => {
    const parts = [['both', 'in both', score.true_positive_ml], ['extra', 'mask only', score.false_positive_ml], ['missed', 'reference only', score.false_negative_ml]];
    return [element('p', {}, element('strong', { textContent: `${name}: Dice ${score.dice === null ? '–' : score.dice.toFixed(3)}` })),
      ...parts.map(([kind, words, ml]) => { const s = element('span', { className: 'swatch' }); s.style.background = `rgb(${VERDICTS[kind]})`; return element('p', { className: 'quiet' }, s, `${words} ${ml.toFixed(2)} mL`); })];
  });
  $('compare').replaceChildren(element('h2', { textContent: 'Against the reference' }), ...lines);
}
