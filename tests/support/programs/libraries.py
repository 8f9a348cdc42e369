"""Training runs with libraries that start many runs or step no torch optimizer.

``python tests/support/programs/libraries.py KIND``
"""

import os
import sys

os.environ["KERAS_BACKEND"] = "torch"

import torch
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
NUM_BATCHES = 24


def data():
    return TensorDataset(torch.randn(4 * NUM_BATCHES, 8), torch.randn(4 * NUM_BATCHES, 1))


def fit(width, samples=None):
    model = nn.Sequential(nn.Linear(8, width), nn.Linear(width, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for features, target in DataLoader(samples or data(), batch_size=4):
        optimizer.zero_grad()
        loss = (model(features) - target).square().mean()
        loss.backward()
        optimizer.step()
    return loss.item()


def optuna_study():
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    optuna.create_study().optimize(lambda trial: fit(trial.suggest_int("width", 4, 32)), n_trials=4)


def grid_search(num_jobs):
    from sklearn.base import BaseEstimator, RegressorMixin
    from sklearn.model_selection import GridSearchCV

    class Network(RegressorMixin, BaseEstimator):
        def __init__(self, width=4):
            self.width = width

        def fit(self, features, target):
            self.n_features_in_ = 8
            fit(self.width, TensorDataset(torch.tensor(features), torch.tensor(target)[:, None]))
            return self

        def predict(self, features):
            return features[:, 0]

    features = torch.randn(8 * NUM_BATCHES, 8)
    search = GridSearchCV(Network(), {"width": [4, 8]}, cv=2, refit=False, n_jobs=num_jobs)
    search.fit(features.numpy(), features[:, 0].numpy())


def folds():
    from sklearn.model_selection import KFold

    samples = TensorDataset(torch.randn(128, 8), torch.randn(128, 1))
    for training, _ in KFold(4).split(range(128)):  # three of four folds: 24 batches
        fit(4, Subset(samples, training.tolist()))


def hydra_multirun():
    import hydra

    @hydra.main(version_base=None)
    def train(settings):
        fit(settings.width)

    sys.argv[1:] = ["--multirun", "hydra.job.chdir=true", "+width=4,8,12,16"]
    train()


def fastai_learner():
    from fastai.basics import DataLoaders, Learner
    from fastai.data.load import DataLoader as Loader

    loaders = DataLoaders(Loader(data(), bs=4), Loader(data(), bs=4))
    learner = Learner(loaders, nn.Linear(8, 1), loss_func=nn.functional.mse_loss)
    learner.fit(2)


def keras_fit():
    import keras

    model = keras.Sequential([keras.layers.Dense(4), keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
    features = torch.randn(4 * NUM_BATCHES, 8).numpy()
    model.fit(features, features[:, :1], batch_size=4, epochs=2, verbose=0)


def thinc_model():
    from thinc.api import Adam, PyTorchWrapper

    features = torch.randn(4 * NUM_BATCHES, 8).numpy()
    model = PyTorchWrapper(nn.Linear(8, 1)).initialize()
    optimizer = Adam(0.01)
    for start in range(0, len(features), 4):
        batch = features[start : start + 4]
        guess, backprop = model.begin_update(batch)
        backprop(guess - batch[:, :1])
        model.finish_update(optimizer)


KINDS = {
    "optuna": optuna_study,
    "sklearn": lambda: grid_search(1),
    "sklearn in two processes": lambda: grid_search(2),
    "sklearn folds": folds,
    "hydra": hydra_multirun,
    "fastai": fastai_learner,
    "keras": keras_fit,
    "thinc": thinc_model,
}

if __name__ == "__main__":
    KINDS[sys.argv[1]]()
