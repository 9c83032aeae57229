"""Claims of the paper's figures about layers, checked with our records."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from driftlaw.reports.format import short_name
from tools.results.claims import ClaimCheck
from tools.results.layer_profiles import BLUR, CLEAN, NOISE, Array, Profile, by_model, fisher_diagonal


def check_weight_distribution(profiles: Sequence[Profile]) -> list[ClaimCheck]:
    """Check that blur concentrates weight in early layers and noise distributes it (Figure 3)."""
    results = []
    for name, by_domain in by_model(profiles).items():
        if NOISE not in by_domain or BLUR not in by_domain:
            continue
        noise, blur = by_domain[NOISE], by_domain[BLUR]
        results += [
            ClaimCheck(
                f"{name}: blur concentrates weight in early layers",
                blur.early_share > noise.early_share,
                f"share of the first third of the layers: {100 * blur.early_share:.1f} % under defocus blur, "
                f"{100 * noise.early_share:.1f} % under Gaussian noise",
            ),
            ClaimCheck(
                f"{name}: noise distributes weight over the model",
                noise.evenness > blur.evenness,
                f"evenness (1 if all layers have the same weight): {noise.evenness:.3f} under Gaussian noise, "
                f"{blur.evenness:.3f} under defocus blur",
            ),
        ]
    return results


def check_importance_on_source(profiles: Sequence[Profile]) -> list[ClaimCheck]:
    """Check that the layer importance is lower on clean images than on each corruption (Figure 4)."""
    return _check_source_is_lower(profiles, "layer importance", lambda profile: profile.values)


def check_fisher_on_source(profiles: Sequence[Profile]) -> list[ClaimCheck]:
    """Check that the Fisher diagonal is lower on clean images than on each corruption (Figure 5)."""
    return _check_source_is_lower(profiles, "the Fisher diagonal", fisher_diagonal)


def _check_source_is_lower(
    profiles: Sequence[Profile], quantity: str, read: Callable[[Profile], Array]
) -> list[ClaimCheck]:
    """Compare the mean over layers, and the majority of single layers."""
    results = []
    for name, by_domain in by_model(profiles).items():
        for domain, target in by_domain.items():
            if domain == CLEAN or CLEAN not in by_domain or len(target.values) != len(by_domain[CLEAN].values):
                continue
            source, shifted = read(by_domain[CLEAN]), read(target)
            below = float((source < shifted).mean())
            evidence = (
                f"mean over layers {source.mean():.3g} and {shifted.mean():.3g}; "
                f"lower in {100 * below:.0f} % of {len(source)} layers"
            )
            holds = bool(source.mean() < shifted.mean() and below > 0.5)
            claim = f"{name}: {quantity} is lower on source images than under {short_name(domain)}"
            results.append(ClaimCheck(claim, holds, evidence))
    return results
