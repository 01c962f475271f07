"""Module paths of version 0.1 and the current path of each: importing an old path returns the current module.

Pickles and programs with old paths continue to work. A path in the table also covers the modules below it.
"""

from __future__ import annotations

import importlib
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

TABLE = """
again                              engines.fast_path
arrays                             common.arrays
attention                          api.attention
audits.behaviour                   audits.model_checks
audits.behaviour.agreement         audits.model_checks.implementations
audits.behaviour.cached            audits.model_checks.cache
audits.declared                    audits.causality
audits.gap                         audits.difference
audits.given                       audits.make_subject
audits.recorded                    audits.run_checks
audits.recorded.arrival            audits.run_checks.implementation
audits.recorded.carried            audits.run_checks.output
audits.recorded.declared           audits.run_checks.layer_settings
audits.recorded.suspects           conformance.mistakes.catalog
audits.recorded.told               audits.run_checks.expected_output
audits.recorded.verdict            audits.run_checks.diagnosis
audits.recorded.words              audits.run_checks.wording
autograd                           api.torch_operator
bench.fresh                        bench.fresh_process
bench.result                       bench.cases
bench.truth                        bench.accuracy
bench.turns                        bench.interleave
bench.whole                        bench.whole_models
cache                              api.kv_cache
cache.kv                           api.kv_cache.cache
cli.report                         cli.classifier_report
cli.watch                          cli.progress
cost                               engines.cost
dropout                            language.dropout
errors                             common.errors
explain                            api.explain
expr                               language.expr
functions                          language.functions
gpu                                engines.gpu
gpu.attention                      engines.gpu.entry
gpu.blocks                         engines.gpu.block_mask
gpu.call                           engines.gpu.device_call
gpu.choice                         engines.gpu.choose
gpu.streamed                       engines.gpu.tiles
gpu.tiles                          engines.gpu.tile_softmax
gradients                          api.backward
intervals                          language.intervals
jit                                engines.jit
jit.kernels.dropout                engines.jit.kernels.parts.dropout
jit.kernels.multiply               engines.jit.kernels.backward_parts.products
jit.kernels.panels                 engines.jit.kernels.parts.panels
jit.kernels.products               engines.jit.kernels.parts.products
jit.kernels.pullback               engines.jit.kernels.backward_parts.pullback
jit.kernels.rules                  engines.jit.kernels.parts.rules
jit.kernels.softmax                engines.jit.kernels.parts.softmax
jit.kernels.staging                engines.jit.kernels.backward_parts.staging
jit.kernels.sweep                  engines.jit.kernels.score_sweep
jit.kernels.tasks                  engines.jit.kernels.parts.tasks
jit.kernels.tile                   engines.jit.kernels.parts.tile
jit.kernels.turns                  engines.jit.kernels.backward_parts.ordered_adds
jit.kernels.visitors               engines.jit.kernels.parts.plan_by_key
lens.axis                          lens.runs.axis
lens.call                          lens.runs.call
lens.choice                        lens.runs.first_view
lens.codes                         lens.runs.codes
lens.figures                       lens.runs.figures
lens.heatmap                       lens.drawing.heatmap
lens.labels                        lens.runs.labels
lens.picture                       lens.drawing.figure
lens.precision                     lens.runs.precision
lens.ramp                          lens.drawing.ramp
lens.reach                         lens.runs.mask_reach
lens.recording.doors               lens.recording.entry
lens.recording.facts               lens.recording.provenance
lens.recording.giving              lens.recording.inputs
lens.recording.keeping             lens.recording.keeper
lens.recording.layout              lens.recording.tensor_layout
lens.recording.observing           lens.recording.observer
lens.recording.opening             torch.hf.load_model
lens.recording.pictures            lens.recording.images
lens.recording.quiet               torch.hf.quiet
lens.recording.spelling            lens.recording.token_text
lens.recording.steps               lens.recording.passes
lens.recording.taken               lens.recording.recorded_call
lens.recording.transformers_models lens.recording.run_model
lens.recording.written             lens.recording.rules.handwritten
lens.run                           lens.runs.run
lens.storing                       lens.storage
lens.storing.container             lens.storage.folder
lens.storing.layout                lens.storage.arrays
lens.storing.rules                 lens.storage.rules_json
lens.storing.sizes                 lens.storage.byte_sizes
lens.storing.strict                common.files.strict_json
lens.storing.tensors               common.files.tensors
lens.terminal                      lens.drawing.terminal
lens.tiles                         lens.runs.tiles
lens.viewer.answers                lens.viewer.queries
lens.viewer.connection             common.web.timeouts
lens.viewer.desk                   lens.viewer.routes
lens.viewer.origin                 lens.viewer.python_source
lens.viewer.walk                   lens.viewer.row_walk
locks                              common.caching
masks                              language.masks
measures                           language.measures
memo                               common.caching
merge                              api.merge
models.batches                     models.data.batches
models.checkpoint                  models.training.checkpoint
models.classification              models.training.classification
models.curve                       models.training.curve
models.device                      models.training.loop
models.picture                     models.training.loss_plot
models.report                      models.training.report
models.run                         models.training.run
models.sampling                    models.generation.sampling
models.stops                       models.generation.stops
models.tables                      models.data.tables
models.text                        models.data.text
models.vocabulary                  models.data.vocabulary
nodes                              language.tree.interning
operators                          language.operators
peak                               engines.peak
plan                               engines.plan
problem                            language.problem
readings                           language.analysis
reference                          engines.reference.attention
reference_stats                    engines.reference.statistics
scalar                             engines.reference.scalar
scores                             language.scores
sdpa                               engines.sdpa
stats                              api.statistics
syntax                             language.tree.syntax
torch.architectures                torch.hf.architectures
torch.layers.checks                torch.layers.parts
torch.layers.heads                 torch.layers.parts
torch.layers.latent_cache          torch.layers.latent
torch.layers.linear                torch.layers.approximate.linear
torch.layers.linformer             torch.layers.approximate.linformer
torch.layers.mask_parts            torch.layers.approximate.mask_parts
torch.layers.norm                  torch.layers.parts
torch.layers.performer             torch.layers.approximate.performer
torch.layers.placed                torch.layers.positioned
torch.layers.seeds                 torch.layers.parts
torch.layers.weights               torch.layers.parts
torch.lazy_mask                    torch.hf.lazy_mask
torch.observe.calls                torch.observe.observer
torch.observe.described            torch.observe.describe
torch.observe.lineage              torch.observe.handwritten
torch.recorder                     torch.hf.recorder
torch.tiny_models                  torch.hf.tiny_models
trace                              language.callables
watch                              common.call_hooks
"""

MOVED = dict(line.split() for line in TABLE.strip().splitlines())


def new_name(path: str) -> str | None:
    """The current name of a module; None if it has not changed."""
    old, below = path.removeprefix("regard."), ""
    while old:
        if old in MOVED:
            return f"regard.{MOVED[old]}{below}"
        old, _, last = old.rpartition(".")
        below = f".{last}{below}"
    return None


class OldNames(MetaPathFinder, Loader):
    """Finds modules under their old names."""

    def find_spec(self, path, _where=None, _target=None):
        if path.startswith("regard.") and new_name(path) is not None:
            return ModuleSpec(path, self)
        return None

    def create_module(self, spec):
        module = importlib.import_module(str(new_name(spec.name)))
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module):
        # The import system has just set the spec to one with the old name.
        module.__spec__, described = module.__spec__.loader_state, module.__spec__
        parent, _, name = described.name.rpartition(".")
        if is_function(sys.modules[parent], name):
            sys.modules[parent].__class__ = FunctionsFirst


def is_function(package: ModuleType, name: str) -> bool:
    """Whether a package has a function of this name, or loads one on first use."""
    return callable(package.__dict__.get(name)) or name in package.__dict__.get("LAZY", ())


class FunctionsFirst(ModuleType):
    """A package in which importing a module does not replace a function of its name, such as `regard.attention`."""

    def __setattr__(self, name, value):
        if not (isinstance(value, ModuleType) and is_function(self, name)):
            super().__setattr__(name, value)


def install() -> None:
    """Installs the finder of old paths."""
    if not any(isinstance(finder, OldNames) for finder in sys.meta_path):
        sys.meta_path.insert(0, OldNames())
