"""Signatures in the form of cosign: ECDSA P-256 over SHA-256, made and verified by openssl."""

import base64
import json
import subprocess

from .common import Fault

STATEMENT = "application/vnd.in-toto+json"
SIGNATURE = "dev.cosignproject.cosign/signature"
SIMPLE_SIGNING = "application/vnd.dev.cosign.simplesigning.v1+json"


def sign(key, content):
    """The signature of some bytes, in base64."""
    command = ["openssl", "dgst", "-sha256", "-sign", str(key)]
    signed = subprocess.run(command, input=content, capture_output=True, check=False)
    if signed.returncode:
        raise Fault(f"openssl cannot sign with {key}: {signed.stderr.decode().strip()}")
    return base64.b64encode(signed.stdout).decode()


def public(key):
    """The public half of a key, as a PEM file has it."""
    read = subprocess.run(["openssl", "pkey", "-in", str(key), "-pubout"], capture_output=True, check=False)
    if read.returncode:
        raise Fault(f"{key} is no private key that openssl reads: {read.stderr.decode().strip()}")
    curve = subprocess.run(["openssl", "pkey", "-in", str(key), "-noout", "-text"], capture_output=True, check=True)
    if b"prime256v1" not in curve.stdout:
        raise Fault(f"{key} is no key of the curve P-256: make one with `openssl ecparam -name prime256v1 -genkey -noout`")
    return read.stdout


def envelope(key, payload):
    """A statement with its signature (DSSE), for `cosign verify-blob-attestation`."""
    signed = b" ".join([b"DSSEv1", str(len(STATEMENT)).encode(), STATEMENT.encode(), str(len(payload)).encode(), payload])
    return {
        "payloadType": STATEMENT,
        "payload": base64.b64encode(payload).decode(),
        "signatures": [{"keyid": "", "sig": sign(key, signed)}],
    }


def image_payload(reference, digest):
    """What `cosign sign` signs of an image."""
    value = {
        "critical": {
            "identity": {"docker-reference": reference},
            "image": {"docker-manifest-digest": digest},
            "type": "cosign container image signature",
        },
        "optional": None,
    }
    return json.dumps(value, separators=(",", ":")).encode()
