#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the software bill of materials of a folder as SPDX 2.3 JSON (https://spdx.github.io/spdx-spec/v2.3/).

Standard input: a line "FILE<tab>ORIGIN" for each file of FOLDER that comes from elsewhere; ORIGIN is the file on this
machine that it was copied from, whose package dpkg names. Every other file of FOLDER is convoy's.

Usage: sbom.py FOLDER VERSION < ORIGINS > sbom.spdx.json
"""
import datetime
import hashlib
import json
import os
import re
import subprocess
import sys
import uuid


def packages_of(origins):
    """{origin: (package, version, source package)} of what dpkg knows; merged /usr: a file may be listed without it."""
    names = sorted({name for origin in origins for name in (origin, origin.removeprefix("/usr"))})
    listing = subprocess.run(["dpkg-query", "-S", *names], capture_output=True, text=True).stdout if names else ""
    owner = {}
    for line in listing.splitlines():
        package, _, path = line.partition(": ")
        owner[path] = package.split(",")[0]
    found = {origin: owner.get(origin) or owner.get(origin.removeprefix("/usr")) for origin in origins}
    wanted = sorted({package for package in found.values() if package})
    form = "${binary:Package}\t${Package}\t${Version}\t${source:Package}\n"
    listing = subprocess.run(["dpkg-query", "-W", "-f", form, *wanted], capture_output=True, text=True).stdout if wanted else ""
    about = {}
    for line in listing.splitlines():
        full, name, version, source = line.split("\t")
        about[full] = about[name] = (name, version, source)
    return {origin: about[package] for origin, package in found.items() if package in about}


def identifier(kind, text):
    return f"SPDXRef-{kind}-" + re.sub(r"[^A-Za-z0-9.]", "-", text)


def package_entry(name, version, licence, supplier, **more):
    return {"SPDXID": identifier("Package", name), "name": name, "versionInfo": version, "supplier": supplier,
            "downloadLocation": "NOASSERTION", "filesAnalyzed": False, "licenseConcluded": "NOASSERTION",
            "licenseDeclared": licence, "copyrightText": "NOASSERTION", **more}


def debian_entry(name, version, source):
    purl = f"pkg:deb/debian/{name}@{version}"
    return package_entry(name, version, "NOASSERTION", "Organization: Debian", sourceInfo=f"Debian source package {source}",
                         externalRefs=[{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": purl}])


def file_entry(root, name):
    with open(os.path.join(root, name), "rb") as file:
        content = file.read()
    checksums = [{"algorithm": kind.upper(), "checksumValue": hashlib.new(kind, content).hexdigest()} for kind in ("sha1", "sha256")]
    return {"SPDXID": identifier("File", name), "fileName": "./" + name, "checksums": checksums,
            "licenseConcluded": "NOASSERTION", "licenseInfoInFiles": ["NOASSERTION"], "copyrightText": "NOASSERTION"}


def relation(element, kind, other):
    return {"spdxElementId": element, "relationshipType": kind, "relatedSpdxElement": other}


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: sbom.py FOLDER VERSION < ORIGINS > sbom.spdx.json")
    root, version = sys.argv[1:]
    origin_of = dict(line.rstrip("\n").split("\t") for line in sys.stdin)
    about = packages_of(sorted(set(origin_of.values())))
    convoy = package_entry("convoy", version, "Apache-2.0", "NOASSERTION")
    unknown = package_entry("other", "NOASSERTION", "NOASSERTION", "NOASSERTION",
                            comment="Files that no package of the build machine owns.")
    packages = {convoy["name"]: convoy}
    files, relations = [], [relation("SPDXRef-DOCUMENT", "DESCRIBES", convoy["SPDXID"])]
    names = sorted(os.path.relpath(os.path.join(folder, name), root)
                   for folder, _, inside in os.walk(root) for name in inside)
    for name in names:
        if os.path.islink(os.path.join(root, name)):
            continue
        owner = convoy
        if name in origin_of:
            debian = about.get(origin_of[name])
            owner = debian_entry(*debian) if debian else unknown
            packages.setdefault(owner["name"], owner)
        entry = file_entry(root, name)
        files.append(entry)
        relations.append(relation(owner["SPDXID"], "CONTAINS", entry["SPDXID"]))
    relations += [relation(convoy["SPDXID"], "DEPENDS_ON", package["SPDXID"])
                  for package in packages.values() if package is not convoy]
    now = datetime.datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", datetime.datetime.now().timestamp())),
                                          datetime.timezone.utc)
    json.dump({"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": f"convoy-bundle-{version}",
               "documentNamespace": f"urn:uuid:{uuid.uuid4()}",
               "creationInfo": {"created": now.strftime("%Y-%m-%dT%H:%M:%SZ"), "creators": ["Tool: scripts/sbom.py"]},
               "packages": list(packages.values()), "files": files, "relationships": relations}, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
