"""What type checkers see of `keepscore`, whose names are loaded when first used (__init__.py).

Each name comes from the module that defines it;
tests/package/test_types.py keeps this list in step.
"""

from keepscore import errors as errors
from keepscore import figures as figures
from keepscore import models as models
from keepscore import networks as networks
from keepscore import priors as priors
from keepscore.data.dataset import Dataset as Dataset
from keepscore.data.dataset import dataset as dataset
from keepscore.data.reading import open_dataset as open_dataset
from keepscore.data.simulate import simulate as simulate
from keepscore.data.verification import repair as repair
from keepscore.data.verification import verify as verify
from keepscore.errors import KeepscoreError as KeepscoreError
from keepscore.errors import KeepscoreWarning as KeepscoreWarning
from keepscore.evaluation.data_check import check_data as check_data
from keepscore.evaluation.equivalence import equivalence as equivalence
from keepscore.evaluation.etest import etest as etest
from keepscore.evaluation.ltest import ltest as ltest
from keepscore.evaluation.pilot import worth as worth
from keepscore.evaluation.scorecard import scorecard as scorecard
from keepscore.fitting.fit import fit as fit
from keepscore.fitting.focus import focus as focus
from keepscore.inference.calibration import calibrate as calibrate
from keepscore.inference.confidence import confidence_set as confidence_set
from keepscore.inference.coverage import local_coverage as local_coverage
from keepscore.inference.lrt import lrt as lrt
from keepscore.inference.mle import mle as mle
from keepscore.inference.posterior import posterior as posterior
from keepscore.inference.refine import refine as refine
from keepscore.inference.sbc import sbc as sbc
from keepscore.likelihood import Likelihood as Likelihood
from keepscore.losses.settings import ASA as ASA
from keepscore.losses.settings import BCE as BCE
from keepscore.models.laws import check_model as check_model
from keepscore.models.standardise import standardise as standardise
from keepscore.reports.compose import report as report
from keepscore.space import Parameter as Parameter
from keepscore.space import Space as Space
from keepscore.surrogate import Surrogate as Surrogate
from keepscore.surrogate import load as load
from keepscore.training.config import TrainConfig as TrainConfig
from keepscore.training.train import train as train

__version__: str
__all__: list[str]
