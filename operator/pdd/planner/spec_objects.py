"""Makes the question from a PDDDeployment and its PDDLink: chips, line, rules and promise stand there already.

What the resources do not say (the load, prices of chips) comes from `Given`, else from stated defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from pdd.api.checks import Severity
from pdd.api.deployment import AbnormalPolicy, Role
from pdd.api.v1alpha1 import PDDDeployment, PDDLink
from pdd.api.validate import validate_texts
from pdd.api.yaml_places import Document, read_yaml
from pdd.common.errors import InvalidInput
from pdd.planner.catalogue import PRECISION_OF_BITS
from pdd.planner.fleet import RuleSpec, Sla
from pdd.planner.kvlaw import KVLaw
from pdd.planner.spec import PORTS_BPS, LineOffer, LoadSpec, Objects, PlanSpec, Prices, SiteSpec

DEFAULT_RATE_PER_S = 10.0
DEFAULT_CHUNK_TOKENS = 8192
INPUT_SHARE_OF_CONTEXT = 0.5


@dataclass(frozen=True, slots=True)
class Given:
    """What a command line adds. None: not given. load.rate_per_s 0 with a trace: the trace's own rate.

    chip_prices: money per hour of one chip. line_price_per_h: of the line as ordered; replaces the PDDLink's. free: the
    answer does not rest on prices, so one that nobody told counts as nothing.
    """

    load: LoadSpec | None = None
    chip_prices: Mapping[str, float] = field(default_factory=dict)
    line_price_per_h: float | None = None
    free: bool = False
    max_engines: int = 1024


@dataclass(frozen=True, slots=True)
class _Places:
    document: Document

    def at(self, *path: str | int) -> str:
        return f"{self.document.file}:{self.document.place(path)[0]}: {'.'.join(str(part) for part in path)}"


def holds_resources(text: str) -> bool:
    """Whether the text is of Kubernetes objects, not a plan file."""
    documents, _ = read_yaml("", text)
    return any(
        isinstance(d.body, dict) and ("spec" in d.body or d.body.get("kind") in ("PDDDeployment", "PDDLink"))
        for d in documents
    )


def read_plan_objects(file: str, text: str, given: Given, price_of: Callable[[str], float | None]) -> PlanSpec:
    """The question of the first PDDDeployment in `text` with its PDDLink, which must stand there too.

    price_of: catalogue price of a chip per hour in USD, None if it has none. Raises InvalidInput.
    """
    report = validate_texts([(file, text)])
    errors = [problem for problem in report.problems if problem.severity is Severity.ERROR]
    if errors:  # a slip in a key is told rather than what is missing because of it
        problem = min(errors, key=lambda p: "known field" not in p.problem)
        where = f"{problem.file}:{problem.line}: {problem.field or problem.object}"
        raise InvalidInput(where, problem.value or None, f"{problem.problem}; {problem.remedy}")
    documents, _ = read_yaml(file, text)
    deployment, link, at, link_at = _find(file, documents)
    spec = deployment.spec
    sites = _read_chips(deployment, at, given)
    assumptions: list[str] = []
    load = _read_load(deployment, given, assumptions)
    roles_of = {deployment.role(role).accelerator.type: (role.value,) for role in reversed(Role)}
    prices = _read_prices(link, link_at, roles_of, at, given, price_of, assumptions)
    ordered = float(link.spec.rate_cap_mbps) * 1e6
    sizes = sorted({ordered, *(port for port in PORTS_BPS if ordered / 4 <= port <= ordered * 4)})
    if len(sizes) > 1:
        assumptions.append("other line sizes at the ordered line's price per Gbit/s")
    router = spec.router
    kv = spec.model.kv
    return PlanSpec(
        source=file,
        model=spec.model.name,
        precision=PRECISION_OF_BITS.get(spec.model.bits_per_weight, ""),
        load=load,
        sla=_read_sla(deployment, assumptions),
        site_a=sites[0],
        site_b=sites[1],
        relay=sites[2],
        line=LineOffer(tuple(sizes), link.spec.line.rtt_ms / 1000, streams=link.spec.streams),
        prices=prices,
        kv=KVLaw(float(kv.bytes_per_token), state_bytes=float(kv.state_bytes)) if kv.bytes_per_token else None,
        block_tokens=kv.block_size,
        rules=RuleSpec(
            relay_threshold_s=router.relay_threshold_ms / 1000,
            handoff_mode=router.handoff_mode,
            one_shot_limit_tokens=router.one_shot_limit_tokens,
            abnormal_enabled=router.abnormal_traffic.policy is AbnormalPolicy.RELAY_TO_END,
            abnormal_max_output_tokens=router.abnormal_traffic.max_output_tokens,
            abnormal_min_transfer_s=router.abnormal_traffic.min_transfer_ms / 1000,
            relay_sessions_per_engine=router.limits.max_relay_sessions,
        ),
        thresholds_s=tuple(sorted({router.relay_threshold_ms / 1000, 0.05, 1.0})),
        assumptions=tuple(assumptions),
        objects=Objects(at.document.body, link_at.document.body),
        places={
            "model": at.at("spec", "model", "name"),
            "precision": at.at("spec", "model", "bitsPerWeight"),
            "sla": at.at("spec", "sla"),
            "sites.a.chips": at.at("spec", "roles", "prefill", "accelerator", "type"),
            "sites.b.chips": at.at("spec", "roles", "mainDecode", "accelerator", "type"),
            "sites.a.accelerators": at.at("spec", "roles", "prefill", "accelerator", "count"),
            "sites.a.relayAccelerators": at.at("spec", "roles", "relayDecode", "accelerator", "count"),
            "sites.b.accelerators": at.at("spec", "roles", "mainDecode", "accelerator", "count"),
        },
    )


def _find(file: str, documents: list[Document]) -> tuple[PDDDeployment, PDDLink, _Places, _Places]:
    links = {}
    for document in documents:
        if document.body.get("kind") == "PDDLink":
            link = PDDLink.from_object(document.body)
            links[link.namespace, link.name] = (link, document)
    for document in documents:
        if document.body.get("kind") == "PDDDeployment":
            deployment = PDDDeployment.from_object(document.body)
            at = _Places(document)
            found = links.get(deployment.link_key)
            if found is None:
                name = "/".join(deployment.link_key)
                remedy = "its PDDLink stands not in this file: add it (it says what the line carries and costs)"
                raise InvalidInput(at.at("spec", "linkRef", "name"), name, remedy)
            return deployment, found[0], at, _Places(found[1])
    raise InvalidInput(f"{file}:1: kind", "no PDDDeployment", "give a PDDDeployment with its PDDLink, or a plan file")


def _read_chips(deployment: PDDDeployment, at: _Places, given: Given) -> tuple[SiteSpec, SiteSpec, SiteSpec]:
    """Engines of prefill, of main decode, of relay decode."""
    chips: dict[Role, str] = {}
    for role in Role:
        accelerator = deployment.role(role).accelerator
        where = ("spec", "roles", role.value, "accelerator")
        if accelerator.count == 0 or not accelerator.type:
            field_name = "count" if accelerator.count == 0 else "type"
            value = accelerator.count if accelerator.count == 0 else accelerator.type
            remedy = "a plan needs chips: give the role an accelerator with type and count (`pdd chips` lists them)"
            raise InvalidInput(at.at(*where, field_name), value, remedy)
        chips[role] = accelerator.type

    def site(role: Role, names: tuple[str, ...]) -> SiteSpec:
        spec, engine = deployment.role(role), deployment.spec.engine
        return SiteSpec(
            chips=tuple(dict.fromkeys(names)),
            accelerators=spec.accelerator.count,
            max_sequences=spec.engine.max_sequences or engine.max_sequences,
            chunk_tokens=spec.engine.chunk_tokens or engine.chunk_tokens or DEFAULT_CHUNK_TOKENS,
            max_engines=given.max_engines,
        )

    here = (chips[Role.PREFILL], chips[Role.RELAY_DECODE])
    main = site(Role.MAIN_DECODE, (chips[Role.MAIN_DECODE],))
    return site(Role.PREFILL, here), main, site(Role.RELAY_DECODE, here[::-1])


def _read_load(deployment: PDDDeployment, given: Given, assumptions: list[str]) -> LoadSpec:
    if given.load is not None:
        return given.load
    tokens = float(int(deployment.spec.model.max_context_tokens * INPUT_SHARE_OF_CONTEXT))
    load = replace(LoadSpec(DEFAULT_RATE_PER_S), input_tokens=tokens, output_tokens=max(1.0, min(1000.0, tokens / 8)))
    assumptions.append(
        f"load: {load.rate_per_s:g} requests/s of {load.input_tokens:g} tokens in (half of maxContextTokens) and "
        f"{load.output_tokens:g} out, 90 % hit rate in seven buckets; give --trace, or --rate, --input, --output, --hit"
    )
    return load


def _read_prices(
    link: PDDLink,
    link_at: _Places,
    chips: Mapping[str, tuple[str, ...]],
    at: _Places,
    given: Given,
    price_of: Callable[[str], float | None],
    assumptions: list[str],
) -> Prices:
    price = link.spec.line.price
    line_per_h = given.line_price_per_h
    if line_per_h is None and price is None and given.free:
        assumptions.append("no price of the line, so it counts as free; --line-price 400/month changes it")
        line_per_h = 0.0
    if line_per_h is None and price is None:
        remedy = "no price of the line: add spec.line.price (currency, centsPerHour), or give --line-price 400/month"
        raise InvalidInput(link_at.at("spec", "line", "price"), None, remedy)
    currency = price.currency if price else "USD"
    if line_per_h is None and price is not None:
        line_per_h = price.cents_per_hour / 100
    table: dict[str, float] = {}
    for name in chips:
        known = given.chip_prices.get(name)
        if known is None:
            where = at.at("spec", "roles", *chips[name], "accelerator", "type")
            try:
                known = price_of(name)
            except InvalidInput as error:
                raise InvalidInput(where, name, error.remedy) from None
            if given.free:
                table[name] = known or 0.0
                continue
            if known is None or (currency != "USD" and price is not None):
                why = "has no price in the catalogue" if known is None else f"its price is known in USD, not {currency}"
                remedy = f"{why}: give --price '{name}=2.95/h'"
                raise InvalidInput(where, name, remedy)
            assumptions.append(f"price of {name} from the catalogue: {known:g} {currency}/h; --price changes it")
        table[name] = known
    return Prices(
        chips=table,
        currency=currency,
        line_per_gbit_h=(line_per_h or 0.0) / (link.spec.line.capacity_mbps / 1000),
    )


def _read_sla(deployment: PDDDeployment, assumptions: list[str]) -> Sla:
    sla = deployment.spec.sla
    if sla.ttft_p90_ms is None and sla.ttft_p99_ms is None and sla.tpot_p99_ms is None:
        assumptions.append("no spec.sla: every plan that keeps up counts, the cheapest is chosen")

    def seconds(milliseconds: int | None) -> float | None:
        return None if milliseconds is None else milliseconds / 1000

    return Sla(seconds(sla.ttft_p90_ms), seconds(sla.ttft_p99_ms), seconds(sla.tpot_p99_ms))
