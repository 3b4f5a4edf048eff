"""Serves a web page, an API and (with --dicom) a DICOM node: scans in, masks out, on one CPU.

Prints an address with a token; open it in a browser. Everything that is received and made lies in DIR. The server
listens to this machine only, unless --host says otherwise. Needs `pip install 'veloxseg[serve]'`.
"""

import argparse
from pathlib import Path
from typing import Annotated

from veloxseg.cli.numbers import amount, count, few, port, size
from veloxseg.runtimes import RUNTIMES
from veloxseg.schema import OneOf, parse

Objects = tuple[Annotated[str, OneOf("seg", "sr", "capture")], ...]
SUMMARY = "web viewer and API: scans in, masks out"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-m", "--model", action="append", required=True, metavar="MODEL", help="folder; several are offered by name"
    )
    parser.add_argument("-o", "--output", required=True, type=Path, metavar="DIR", help="where cases are kept")
    parser.add_argument(
        "--open",
        action="append",
        default=[],
        type=Path,
        metavar="FILE",
        help="a scan to start with; several are one case",
    )
    parser.add_argument(
        "--host", default="127.0.0.1", metavar="H", help="address to listen at (default: this machine only)"
    )
    parser.add_argument("--port", type=port, default=8760, metavar="N", help="default 8760; 0 takes a free one")
    parser.add_argument("--token-file", type=Path, metavar="F", help="default: DIR/token, made at the first start")
    parser.add_argument(
        "--name", action="append", default=[], metavar="HOST", help="a name that browsers use for this server"
    )
    parser.add_argument("--tls-cert", type=Path, metavar="PEM", help="with --tls-key: serve https")
    parser.add_argument("--tls-key", type=Path, metavar="PEM", help="private key of the certificate")
    parser.add_argument("--behind-proxy", action="store_true", help="a proxy before this server does TLS")
    parser.add_argument(
        "--dicom", metavar="AE:PORT", help="be a DICOM node of this title too (AE@HOST:PORT: elsewhere)"
    )
    parser.add_argument("--allow", action="append", default=[], metavar="AE@HOST", help="who may send DICOM")
    parser.add_argument(
        "--send",
        action="append",
        default=[],
        metavar="AE@HOST:PORT",
        help="where DICOM results go; http(s)://… is STOW-RS",
    )
    parser.add_argument(
        "--objects", default="seg", metavar="LIST", help="what is sent: seg, sr, capture, or several (default seg)"
    )
    parser.add_argument("--dicom-tls", type=Path, nargs=3, metavar=("CERT", "KEY", "CA"), help="mutual TLS for DICOM")
    parser.add_argument(
        "--study-quiet",
        type=amount,
        default=10.0,
        metavar="S",
        help="without a slice, then a study is read (default 10)",
    )
    parser.add_argument(
        "--study-patience", type=amount, default=600.0, metavar="S", help="for what is missing of it (default 600)"
    )
    parser.add_argument("--runtime", choices=("auto", *RUNTIMES), default="auto", help="default: the fastest here")
    parser.add_argument(
        "--threads", type=few, metavar="N", help="of prediction (default: all cores; with --ray 1 for each case)"
    )
    parser.add_argument(
        "--ray", metavar="ADDRESS", help="predict on a Ray cluster (auto: the one that this machine belongs to)"
    )
    parser.add_argument("--remove-smaller", type=amount, default=0.0, metavar="ML", help="drop smaller components")
    parser.add_argument("--max-ram", type=size, metavar="GB", help="of prediction: stay below; refuse what cannot")
    parser.add_argument(
        "--queue", type=count, default=100, metavar="N", help="unfinished cases that are taken (default 100)"
    )
    parser.add_argument(
        "--keep-days", type=amount, default=3.0, metavar="D", help="then cases are deleted (default 3; 0: never)"
    )
    parser.add_argument("--max-upload", type=size, default=4.0, metavar="GB", help="of one file (default 4)")
    parser.add_argument(
        "--min-free", type=amount, default=2.0, metavar="GB", help="of the disk; below, nothing is taken (default 2)"
    )


def run(arguments: argparse.Namespace) -> int:
    from veloxseg.serve.nodes import TlsFiles, allowed_node, own_node, target_node
    from veloxseg.serve.run import serve
    from veloxseg.serve.settings import Settings

    settings = Settings(
        folder=arguments.output.absolute(),
        models=tuple(arguments.model),
        host=arguments.host,
        port=arguments.port,
        token_file=arguments.token_file,
        names=tuple(arguments.name),
        behind_proxy=arguments.behind_proxy,
        certificate=arguments.tls_cert,
        key=arguments.tls_key,
        runtime=arguments.runtime,
        threads=arguments.threads,
        max_ram=arguments.max_ram,
        ray=arguments.ray,
        options={"remove_smaller": arguments.remove_smaller},
        queue=arguments.queue,
        keep_days=arguments.keep_days,
        max_upload_gb=arguments.max_upload,
        min_free_gb=arguments.min_free,
        dicom=own_node(arguments.dicom, arguments.host) if arguments.dicom else None,
        allow=tuple(allowed_node(text) for text in arguments.allow),
        send=tuple(target_node(text) for text in arguments.send),
        objects=parse(Objects, arguments.objects, "--objects"),
        quiet=arguments.study_quiet,
        patience=arguments.study_patience,
        dicom_tls=TlsFiles(*arguments.dicom_tls) if arguments.dicom_tls else None,
    )
    serve(settings, arguments.open)
    return 0
