"""Verify quotes of Intel TDX and SGX by dcap-qvl, with the collateral that came with them."""

import hashlib

from hearsay.attestation.claims import AttestationRefused, Claims, Condition, Evidence
from ldp.errors import needs


def verify(evidence: Evidence, now: float) -> Claims:
    """Return what a quote says.

    The measurement of "sgx" is MRENCLAVE, that of "tdx" SHA-384 over MRTD and RTMR0 to RTMR3.
    A quote says no time of its own: the nonce in its binding makes it fresh. Raises
    AttestationRefused; nothing is fetched.
    """
    with needs("attestation", "attestation"):
        import dcap_qvl

    try:
        collateral = dcap_qvl.QuoteCollateralV3.from_json(evidence.collateral.decode())
        verified = dcap_qvl.verify(evidence.document, collateral, int(now))
        quote = dcap_qvl.parse_quote(evidence.document)
        report = quote.report
        if quote.is_tdx():
            parts = (report.mr_td, report.rt_mr0, report.rt_mr1, report.rt_mr2, report.rt_mr3)
            measurement = hashlib.sha384(b"".join(parts)).hexdigest()
            debug = report.td_attributes[0] != 0  # bits 0 to 7: the TD is under debug
        else:
            measurement = report.mr_enclave.hex()
            debug = bool(report.attributes[0] & 2)
    except ValueError as error:
        # dcap-qvl refuses a quote under debug itself, in words alone.
        condition = Condition.DEBUG if "debug" in str(error).lower() else Condition.EVIDENCE
        raise AttestationRefused(condition, f"no valid quote: {error}") from error
    return Claims(
        kind="tdx" if quote.is_tdx() else "sgx",
        measurement=measurement,
        bound=report.report_data,
        status=verified.status,
        debug=debug,
        advisories=tuple(verified.advisory_ids),
    )
