"""Parameters: those of a function, and what each of them is, by the names that the field uses for it."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...common.errors import Reason, Refused, did_you_mean, refuse_all
from .fields import ROLES, Adapter


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One parameter of a function.

    kind: "positional" if it is passed by position only, "keyword" if by name only, "either", "rest" for *args, "names"
    for **kwargs · required: whether it has no default · annotation: its text
    """

    name: str
    kind: str = "either"
    required: bool = False
    annotation: str = ""


KINDS = {
    inspect.Parameter.POSITIONAL_ONLY: "positional",
    inspect.Parameter.POSITIONAL_OR_KEYWORD: "either",
    inspect.Parameter.KEYWORD_ONLY: "keyword",
    inspect.Parameter.VAR_POSITIONAL: "rest",
    inspect.Parameter.VAR_KEYWORD: "names",
}


def parameters_of(function: Callable[..., Any]) -> tuple[Parameter, ...]:
    """The parameters of a function, of a module's `forward`, or those that a docstring begins with; () if unknown."""
    called = getattr(function, "forward", function) if not inspect.isroutine(function) else function
    try:
        signature = inspect.signature(called)
    except (TypeError, ValueError):  # compiled functions have none
        return _from_docstring(getattr(called, "__doc__", None) or "")
    return tuple(
        Parameter(
            name=each.name,
            kind=KINDS[each.kind],
            required=each.default is each.empty and KINDS[each.kind] not in ("rest", "names"),
            annotation="" if each.annotation is each.empty else inspect.formatannotation(each.annotation),
        )
        for each in signature.parameters.values()
    )


def _from_docstring(text: str) -> tuple[Parameter, ...]:
    """The parameters in a line such as `name(q, k, v, *, mask=None) -> Tensor`, as docstrings of compiled functions
    have it."""
    found = re.search(r"^\s*[\w.]+\(([^()]*)\)", text, re.M)
    if not found:
        return ()
    try:
        definition = ast.parse(f"def f({found[1]}): ...").body[0]
    except SyntaxError:
        return ()
    assert isinstance(definition, ast.FunctionDef)
    arguments = definition.args
    positions = [*arguments.posonlyargs, *arguments.args]
    first_default = len(positions) - len(arguments.defaults)
    listed = [
        Parameter(
            name=each.arg,
            kind="positional" if number < len(arguments.posonlyargs) else "either",
            required=number < first_default,
        )
        for number, each in enumerate(positions)
    ]
    listed += [
        Parameter(name=each.arg, kind="keyword", required=default is None)
        for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults)
    ]
    if arguments.kwarg:
        listed.append(Parameter(name=arguments.kwarg.arg, kind="names"))
    return tuple(listed)


# The names of each role, the most usual first; case and leading underscores do not matter.
NAMES: dict[str, str] = {
    "q": "q query queries query_states query_layer xq qs q_states",
    "k": "k key keys key_states key_layer xk ks k_states",
    "v": "v value values value_states value_layer xv vs v_states val vals",
    "mask": "mask attn_mask attention_mask key_padding_mask padding_mask attend_mask bool_mask masks allowed key_mask",
    "bias": "bias attn_bias attention_bias score_bias position_bias rel_pos_bias alibi additive_mask relative_bias",
    "causal": "causal is_causal use_causal_mask use_causal causal_mask apply_causal_mask",
    "window": "window window_size sliding_window local_window_size sliding_window_size local_window attention_window",
    "window_before": "window_before window_left left_window window_size_left before",
    "window_after": "window_after window_right right_window window_size_right after",
    "lengths": "lengths key_lengths kv_lengths kv_lens seq_lens seq_lengths key_value_seq_lengths cache_seqlens "
    "seqlens valid_lengths valid_lens kv_seqlens key_lens k_lengths k_lens nonpad_kv_seqlen",
    "start": "start query_start q_start query_offset q_offset start_pos offset cache_position",
    "scale": "scale softmax_scale sm_scale scaling scale_factor attn_scale qk_scale",
    "softcap": "softcap logits_soft_cap logit_cap logits_softcap soft_cap attn_logit_softcapping softcapping "
    "logit_softcap cap",
    "sinks": "sinks s_aux sink sink_logits attention_sinks attn_sink learnable_sink",
    "dropout": "dropout dropout_p dropout_rate p_dropout attn_dropout attention_dropout dropout_prob",
    "seed": "seed dropout_seed rng_seed",
    "return_lse": "return_lse return_softmax_lse return_residual return_residuals with_lse return_logsumexp need_lse "
    "output_lse",
    "return_weights": "return_weights need_weights return_attn_probs output_attentions return_attention_weights "
    "return_attn return_attention return_probs return_attention_scores return_attn_weights output_weights",
    "heads": "num_heads n_heads heads h nheads n_head num_attention_heads num_q_heads q_num_heads nhead q_heads",
    "key_heads": "num_kv_heads n_kv_heads kv_heads num_key_value_heads kv_num_heads num_k_heads key_heads groups "
    "n_kv_head",
    "cu_seqlens_q": "cu_seqlens_q cu_seqlens cu_seq_q qo_indptr cu_q cu_seqlen_q cu_seqlens_query",
    "cu_seqlens_k": "cu_seqlens_k cu_seqlens_kv cu_seq_k kv_indptr cu_k cu_seqlen_k cu_seqlens_key",
    "max_seqlen_q": "max_seqlen_q max_seqlen max_q max_seq_q max_seqlens_q",
    "max_seqlen_k": "max_seqlen_k max_seqlen_kv max_k max_seq_k max_seqlens_k",
}
BY_NAME = {name: role for role in ROLES for name in NAMES[role].split()}
# Parameters that no role describes, with what every call passes for them.
FIXED: dict[str, Any] = {"enable_gqa": True}


def roles_by_name(parameters: Iterable[Parameter], taken: Iterable[str] = ()) -> dict[str, str]:
    """The parameter of each role, by its name. taken: names that have a role already. Of several names of one role, the
    most usual gets it."""
    found: dict[str, str] = {}
    skipped = set(taken)
    for parameter in parameters:
        role = BY_NAME.get(parameter.name.lower().strip("_"))
        if role is None or parameter.name in skipped or parameter.kind in ("rest", "names"):
            continue
        if role not in found or _rank(role, parameter.name) < _rank(role, found[role]):
            found[role] = parameter.name
    return found


def _rank(role: str, name: str) -> int:
    return NAMES[role].split().index(name.lower().strip("_"))


def completed(adapter: Adapter, parameters: Sequence[Parameter]) -> Adapter:
    """The adapter with the roles that names give to parameters that it does not mention. The first parameters that are
    passed by position are q, k and v if no name says so.

    Raises:
        Refused: if the function has no q, k or v, or requires a parameter whose role nothing says.
    """
    if not parameters:  # nothing is known about them: what is declared is passed, q, k and v by position
        return adapter
    if wrong := list(missing_parameters(adapter.parameters, adapter.fixed, parameters)):
        raise Refused("conform", wrong)
    declared = dict(adapter.parameters)
    taken = {*declared.values(), *adapter.fixed}
    roles = {role: name for role, name in roles_by_name(parameters, taken).items() if role not in declared} | declared
    used = {*roles.values(), *adapter.fixed}
    free = [each for each in parameters if each.kind in ("positional", "either") and each.name not in used]
    for role in "qkv":
        if role not in roles and free and (free[0].required or role in "qk"):
            roles[role] = free.pop(0).name
    names = {each.name for each in parameters}
    fixed = {name: value for name, value in FIXED.items() if name in names} | dict(adapter.fixed)
    _check(roles, fixed, parameters)
    return replace(adapter, parameters=roles, fixed=fixed)


def _check(roles: Mapping[str, str], fixed: Mapping[str, Any], parameters: Sequence[Parameter]) -> None:
    """Refuses a function without q, k or v, and one with required parameters that have no role."""
    listed = ", ".join(each.name for each in parameters)
    reasons = []
    takes_rest = any(each.kind == "rest" for each in parameters)
    if (missing := [role for role in "qkv" if role not in roles]) and not takes_rest:
        given, expected = f"parameters {listed}", "parameters for q, k and v"
        fix = 'name them: parameters={"q": …, "k": …, "v": …}'
        reasons.append(Reason(f"no parameter for {', '.join(missing)}", given, expected, fix))
    known = {*roles.values(), *fixed}
    if unknown := [each.name for each in parameters if each.required and each.name not in known]:
        reasons.append(
            Reason(
                "parameters without a role",
                f"{', '.join(unknown)} without a default",
                "a role for each parameter that must be passed",
                f'name its role: parameters={{ROLE: "{unknown[0]}"}}, or pass a value: fixed={{"{unknown[0]}": …}}',
            )
        )
    refuse_all("conform", reasons)


def missing_parameters(
    parameters: Mapping[str, str], fixed: Iterable[str], accepted: Sequence[Parameter]
) -> Iterator[Reason]:
    """Declared names that the function does not accept."""
    if not accepted or any(each.kind == "names" for each in accepted):
        return
    known = [each.name for each in accepted if each.kind != "rest"]
    declared = [
        *((f"parameters: {role} is {name}", name) for role, name in parameters.items()),
        *((f"fixed value of {name}", name) for name in fixed),
    ]
    for given, name in declared:
        if name not in known:
            yield Reason(f"no parameter {name}", given, f"one of {', '.join(known)}", did_you_mean(name, known))
