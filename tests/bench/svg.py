#!/usr/bin/env python3
"""What a roofline plot must be: svg.py FILE.svg checks it as XML; svg.py FILE.svg BROWSER OUT.png also shows it in a browser, light and dark.

Prints "ok - ..", "not ok - .." lines as shell tests do."""
import re, struct, subprocess, sys, xml.etree.ElementTree as ET, zlib

SVG = '{http://www.w3.org/2000/svg}'
bad = 0


def check(name, fine, why=''):
    global bad
    bad += not fine
    print(f'ok - {name}' if fine else f'not ok - {name}: {why}')


def png_pixel(path, x, y):
    """One pixel of a PNG of 8 bits a channel, not interlaced: (red, green, blue)."""
    data, at, idat = open(path, 'rb').read(), 8, b''
    while at < len(data):
        n, kind = struct.unpack('>I4s', data[at:at + 8])
        if kind == b'IHDR': w, h, depth, color = struct.unpack('>IIBB', data[at + 8:at + 18])
        if kind == b'IDAT': idat += data[at + 8:at + 8 + n]
        at += 12 + n
    raw, bpp = zlib.decompress(idat), {2: 3, 6: 4}[color]
    before = bytearray(w * bpp)
    for row in range(y + 1):
        filt, line = raw[row * (w * bpp + 1)], bytearray(raw[row * (w * bpp + 1) + 1:(row + 1) * (w * bpp + 1)])
        for i in range(len(line)):
            a, b, c = line[i - bpp] if i >= bpp else 0, before[i], before[i - bpp] if i >= bpp else 0
            p = a + b - c
            paeth = min((a, b, c), key=lambda v: abs(p - v))
            line[i] = (line[i] + [0, a, b, (a + b) // 2, paeth][filt]) & 255
        before = line
    return tuple(before[x * bpp:x * bpp + 3])


def structure(path):
    root = ET.parse(path).getroot()
    text = open(path, encoding='utf-8').read()
    check('the root is svg', root.tag == SVG + 'svg', root.tag)
    circles, diamonds = list(root.iter(SVG + 'circle')), [p for p in root.iter(SVG + 'path') if p.get('class') == 's1']
    check('both phases have marks of their own', len(circles) > 1 and len(diamonds) > 1, f'{len(circles)} and {len(diamonds)}')
    roofs = [p for p in root.iter(SVG + 'path') if p.get('class') == 'roof']
    check('a slope and two roofs', len(roofs) == 3, len(roofs))
    check('no number is nan or infinite', not re.search(r'"[^"]*\b(nan|inf)\b', text), 'one is')
    w, h = float(root.get('width')), float(root.get('height'))
    outside = [(t.get('x'), t.get('y')) for t in root.iter(SVG + 'text') if t.get('x') and not (0 <= float(t.get('x')) <= w and 0 <= float(t.get('y')) <= h)]
    outside += [c.attrib for c in circles if not (0 <= float(c.get('cx')) <= w and 0 <= float(c.get('cy')) <= h)]
    check('everything lies inside', not outside, outside)
    check('it knows dark screens', 'prefers-color-scheme: dark' in text)
    check('no script, nothing from elsewhere', not re.search(r'<script|href=|url\(|@import|\son\w+=', text), 'there is')
    return root


def shown(path, browser, out):
    for scheme, pref, want in (('light', '1', (255, 255, 255)), ('dark', '0', (21, 23, 26))):
        cmd = [browser, '--headless', '--no-sandbox', '--disable-gpu', '--hide-scrollbars', f'--blink-settings=preferredColorScheme={pref}', '--window-size=1260,620', f'--screenshot={out}', 'file://' + path]
        r = subprocess.run(cmd, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100)
        if r.returncode: check(f'the browser shows it on a {scheme} screen', False, r.stderr[-200:])
        else:
            got = png_pixel(out, 20, 20)
            check(f'the browser shows it on a {scheme} screen', got == want, f'ground {got}, expected {want}')
            inked = len({png_pixel(out, x, 99) for x in range(680, 690)})
            check(f'its list is there on the {scheme} screen', inked > 1, 'blank')


structure(sys.argv[1])
if len(sys.argv) > 3: shown(*sys.argv[1:4])
sys.exit(bad > 0)
