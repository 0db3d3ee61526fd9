"""Small real trainings in numpy. Each has `params`, `learn(step)` and `evaluate()`, and follows the learning rate it is
given; what is wrong with one is wrong in its options, not in what it prints."""

import itertools

import numpy as np


class Optimizer:
    """SGD with momentum, or Adam. `detached`: it was given copies, so the model itself never changes."""

    def __init__(self, params, kind="sgd", momentum=0.0, clip=0.0, detached=False, decay=0.0):
        self.params, self.kind, self.momentum, self.clip, self.decay = params, kind, momentum, clip, decay
        self.targets = {name: value.copy() for name, value in params.items()} if detached else params
        self.first = {name: np.zeros_like(value) for name, value in params.items()}
        self.second = {name: np.zeros_like(value) for name, value in params.items()}
        self.count = 0

    def step(self, grads, lr):
        norm = float(np.sqrt(sum(float(np.sum(grad * grad)) for grad in grads.values())))
        scale = min(1.0, self.clip / norm) if self.clip and norm > 0 else 1.0
        self.count += 1
        for name, grad in grads.items():
            grad = grad * scale + self.decay * self.params[name]
            if self.kind == "adam":
                self.first[name] = 0.9 * self.first[name] + 0.1 * grad
                self.second[name] = 0.99 * self.second[name] + 0.01 * grad * grad
                mean = self.first[name] / (1 - 0.9**self.count)
                grad = mean / (np.sqrt(self.second[name] / (1 - 0.99**self.count)) + 1e-8)
            else:
                self.first[name] = self.momentum * self.first[name] + grad
                grad = self.first[name]
            self.targets[name] -= lr * grad
        return norm


class Network:
    """A perceptron with any number of layers, for targets of three kinds."""

    def __init__(self, rng, sizes, loss, options):
        self.rng, self.loss, self.options = rng, loss, options
        scale = options.get("init", 1.0)
        self.params = {}
        for number, (before, after) in enumerate(itertools.pairwise(sizes)):
            self.params[f"w{number}"] = rng.normal(size=(before, after)) * scale / np.sqrt(before)
            self.params[f"b{number}"] = np.zeros(after)
        self.layers = len(sizes) - 1
        self.optimizer = Optimizer(
            self.params,
            options.get("optimizer", "sgd"),
            options.get("momentum", 0.0),
            options.get("clip", 0.0),
            options.get("detached", False),
            options.get("decay", 0.0),
        )

    def forward(self, x):
        kept = [x]
        for number in range(self.layers):
            x = x @ self.params[f"w{number}"] + self.params[f"b{number}"]
            if number < self.layers - 1:
                x = np.maximum(x, 0.0) if self.options.get("relu") else np.tanh(x)
            kept.append(x)
        return kept

    def judge(self, out, y):
        """Loss, its gradient by the outputs, and accuracy where there is one."""
        size = len(out)
        if self.loss == "mse":
            apart = out - y
            return float(np.mean(apart**2)), 2 * apart / apart.size, None
        if self.loss == "nll":  # of a Gaussian with a small fixed width: below zero when the fit is good
            width = self.options.get("width", 0.1)
            apart = (out - y) / width
            return float(np.mean(0.5 * apart**2 + np.log(width) + 0.919)), apart / width / apart.size, None
        shifted = out - out.max(axis=1, keepdims=True)
        exps = np.exp(shifted)
        chances = exps / exps.sum(axis=1, keepdims=True)
        picked = chances[np.arange(size), y]
        loss = float(np.mean(-np.log(picked if self.options.get("raw_log") else np.maximum(picked, 1e-12))))
        grad = chances.copy()
        grad[np.arange(size), y] -= 1
        return loss, grad / size, float(np.mean(out.argmax(axis=1) == y))

    def learn(self, x, y, lr):
        kept = self.forward(x)
        loss, grad, right = self.judge(kept[-1], y)
        grads = {}
        for number in range(self.layers - 1, -1, -1):
            grads[f"w{number}"] = kept[number].T @ grad
            grads[f"b{number}"] = grad.sum(axis=0)
            grad = grad @ self.params[f"w{number}"].T
            if number:
                grad = grad * ((kept[number] > 0) if self.options.get("relu") else (1 - kept[number] ** 2))
        norm = self.optimizer.step(grads, lr)
        return loss, norm, right


class Supervised:
    """Data, a network, and batches from the data."""

    def __init__(self, rng, options):
        self.rng, self.options = rng, options
        self.batch = options.get("batch", 32)
        self.noise = options.get("noise", 0.1)
        self.make()
        if options.get("shuffled"):
            self.y = self.y[rng.permutation(len(self.y))]
            self.test_y = self.test_y[rng.permutation(len(self.test_y))]

    def network(self, sizes, loss):
        net = Network(self.rng, sizes, loss, self.options)
        for _ in range(self.options.get("pretrained", 0)):
            net.learn(*self.sample(), self.options.get("pretrained_lr", 0.05))
        return net

    def sample(self):
        if self.options.get("whole"):
            return self.x, self.y
        chosen = self.rng.integers(0, len(self.x), self.batch)
        return self.x[chosen], self.y[chosen]

    def learn(self, step, lr):
        x, y = self.sample()
        if self.options.get("random_labels"):  # new ones at every step: there is nothing to learn
            y = self.rng.permutation(y) if y.ndim == 1 else self.rng.normal(size=y.shape)
        outlier = self.options.get("outlier_at")
        if outlier is not None and step == outlier:
            x = x * self.options.get("outlier", 30.0)
        harder = self.options.get("harder")
        if harder:  # a curriculum: the noise of the labels rises by design
            y = y + self.rng.normal(size=y.shape) * harder * min(1.0, step / self.options.get("ramp", 100))
        bad = self.options.get("bad_sample_at")
        if bad is not None and step >= bad and (step - bad) % 7 == 0:
            x = x.copy()
            x[0, 0] = np.nan
        loss, norm, right = self.net.learn(x, y, lr)
        told = {"loss": loss, "grad_norm": norm}
        if right is not None:
            told["acc"] = right
        return told

    def evaluate(self):
        out = self.net.forward(self.test_x)[-1]
        loss, _, right = self.net.judge(out, self.test_y)
        return {"val_loss": loss} | ({} if right is None else {"val_acc": right})

    @property
    def params(self):
        return self.net.params


class Regression(Supervised):
    def make(self):
        size, width = self.options.get("size", 400), self.options.get("width_in", 4)
        x = self.rng.normal(size=(size + 200, width))
        teacher = self.rng.normal(size=(width, 1))
        y = np.sin(x @ teacher) * self.options.get("scale", 1.0) + self.noise * self.rng.normal(size=(size + 200, 1))
        self.x, self.y, self.test_x, self.test_y = x[:size], y[:size], x[size:], y[size:]
        hidden = self.options.get("hidden", [24])
        self.net = self.network([width, *hidden, 1], self.options.get("objective", "mse"))


class Linear(Supervised):
    """Least squares: with too large a rate it diverges at an even pace, for ever."""

    def make(self):
        size, width = self.options.get("size", 300), self.options.get("width_in", 8)
        x = self.rng.normal(size=(size + 100, width))
        y = x @ self.rng.normal(size=(width, 1)) + self.noise * self.rng.normal(size=(size + 100, 1))
        self.x, self.y, self.test_x, self.test_y = x[:size], y[:size], x[size:], y[size:]
        self.net = self.network([width, 1], self.options.get("objective", "mse"))


class Classes(Supervised):
    """Blobs; with no hidden layer it is a softmax regression."""

    def make(self):
        size, width, kinds = (
            self.options.get("size", 400),
            self.options.get("width_in", 6),
            self.options.get("kinds", 4),
        )
        centers = self.rng.normal(size=(kinds, width)) * self.options.get("apart", 1.5)
        y = self.rng.integers(0, kinds, size + 300)
        x = centers[y] + self.rng.normal(size=(size + 300, width))
        flip = self.rng.random(size) < self.options.get("flipped", 0.0)
        y[:size][flip] = self.rng.integers(0, kinds, int(flip.sum()))
        self.x, self.y, self.test_x, self.test_y = x[:size], y[:size], x[size:], y[size:]
        self.net = self.network([width, *self.options.get("hidden", []), kinds], "classes")


class Autoencoder(Supervised):
    def make(self):
        size, width = self.options.get("size", 300), self.options.get("width_in", 12)
        basis = self.rng.normal(size=(3, width))
        x = self.rng.normal(size=(size + 100, 3)) @ basis + self.noise * self.rng.normal(size=(size + 100, width))
        self.x = self.y = x[:size]
        self.test_x = self.test_y = x[size:]
        self.net = self.network([width, self.options.get("code", 4), width], "mse")


class Recurrent:
    """A tiny recurrent network that predicts the next value of a wave, by back-propagation through time."""

    def __init__(self, rng, options):
        self.rng, self.options = rng, options
        size = options.get("hidden", [12])[0]
        self.params = {
            "in": rng.normal(size=(1, size)) * 0.5,
            "rec": rng.normal(size=(size, size)) * options.get("init", 0.9) / np.sqrt(size),
            "out": rng.normal(size=(size, 1)) * 0.3,
        }
        self.optimizer = Optimizer(
            self.params, options.get("optimizer", "adam"), options.get("momentum", 0.0), options.get("clip", 1.0),
            options.get("detached", False),
        )  # fmt: skip

    def run(self, x):
        states = [np.zeros((x.shape[1], self.params["rec"].shape[0]))]
        for each in x:
            states.append(np.tanh(each @ self.params["in"] + states[-1] @ self.params["rec"]))
        return states, [state @ self.params["out"] for state in states[1:]]

    def waves(self, count):
        start, pace = (
            self.rng.random((1, count, 1)) * 6,
            self.options.get("pace", 0.4) + self.rng.random((1, count, 1)) * 0.2,
        )
        whole = np.sin(start + pace * np.arange(13).reshape(-1, 1, 1))
        whole = whole + self.options.get("noise", 0.02) * self.rng.normal(size=whole.shape)
        return whole[:-1], whole[1:]

    def learn(self, step, lr):
        x, y = self.waves(self.options.get("batch", 16))
        states, outs = self.run(x)
        apart = [(out - each) / (y.size) for out, each in zip(outs, y, strict=True)]
        loss = float(np.mean([(np.mean((out - each) ** 2)) for out, each in zip(outs, y, strict=True)]))
        grads = {name: np.zeros_like(value) for name, value in self.params.items()}
        back = np.zeros_like(states[0])
        for place in range(len(x) - 1, -1, -1):
            grads["out"] += states[place + 1].T @ (2 * apart[place])
            back = back + 2 * apart[place] @ self.params["out"].T
            back = back * (1 - states[place + 1] ** 2)
            grads["in"] += x[place].T @ back
            grads["rec"] += states[place].T @ back
            back = back @ self.params["rec"].T
        return {"loss": loss, "grad_norm": self.optimizer.step(grads, lr)}

    def evaluate(self):
        x, y = self.waves(64)
        _, outs = self.run(x)
        return {"val_loss": float(np.mean([np.mean((out - each) ** 2) for out, each in zip(outs, y, strict=True)]))}


class Factors:
    """Ratings as a product of two low-rank matrices."""

    def __init__(self, rng, options):
        self.rng, self.options = rng, options
        people, things, rank = options.get("people", 60), options.get("things", 40), options.get("rank", 4)
        truth = rng.normal(size=(people, 3)) @ rng.normal(size=(3, things)) / 2
        truth += options.get("noise", 0.1) * rng.normal(size=truth.shape)
        known = rng.random(truth.shape) < options.get("known", 0.5)
        self.seen, self.kept, self.truth = np.argwhere(known), np.argwhere(~known), truth
        self.params = {"people": 0.3 * rng.normal(size=(people, rank)), "things": 0.3 * rng.normal(size=(things, rank))}
        self.targets = (
            {name: value.copy() for name, value in self.params.items()} if options.get("detached") else self.params
        )

    def guess(self, at):
        return np.sum(self.params["people"][at[:, 0]] * self.params["things"][at[:, 1]], axis=1)

    def learn(self, step, lr):
        at = self.seen[self.rng.integers(0, len(self.seen), self.options.get("batch", 256))]
        apart = self.guess(at) - self.truth[at[:, 0], at[:, 1]]
        people = apart[:, None] * self.params["things"][at[:, 1]]
        things = apart[:, None] * self.params["people"][at[:, 0]]
        np.add.at(self.targets["people"], at[:, 0], -lr * people)
        np.add.at(self.targets["things"], at[:, 1], -lr * things)
        return {"loss": float(np.mean(apart**2)), "grad_norm": float(np.sqrt(np.sum(people**2) + np.sum(things**2)))}

    def evaluate(self):
        apart = self.guess(self.kept) - self.truth[self.kept[:, 0], self.kept[:, 1]]
        return {"val_loss": float(np.mean(apart**2)), "val_rmse": float(np.sqrt(np.mean(apart**2)))}


class Players:
    """A generator (scale and shift of noise) against a discriminator on x and x²: neither loss has to fall."""

    def __init__(self, rng, options):
        self.rng, self.options = rng, options
        self.params = {"g": np.array([rng.uniform(0.3, 1.0), rng.uniform(-3.0, 0.0)]), "d": np.zeros(3)}

    def learn(self, step, lr):
        size = self.options.get("batch", 64)
        real = self.rng.normal(2.0, 0.7, size)
        noise = self.rng.normal(size=size)
        g, d = self.params["g"], self.params["d"]
        fake = g[0] * noise + g[1]

        def features(x):
            return np.stack([np.ones_like(x), x, x * x / 4], axis=1)

        def sigmoid(x):
            return 1 / (1 + np.exp(-np.clip(x, -30, 30)))

        on_real, on_fake = sigmoid(features(real) @ d), sigmoid(features(fake) @ d)
        d_loss = float(-np.mean(np.log(on_real + 1e-9) + np.log(1 - on_fake + 1e-9)))
        g_loss = float(-np.mean(np.log(on_fake + 1e-9)))
        d += lr * (features(real).T @ (1 - on_real) - features(fake).T @ on_fake) / size - 0.001 * d
        push = (1 - on_fake) * (d[1] + d[2] * fake / 2)
        g += 0.3 * lr * np.array([np.mean(push * noise), np.mean(push)])
        return {"d_loss": d_loss, "g_loss": g_loss, "d_real": float(on_real.mean()), "d_fake": float(on_fake.mean())}

    def evaluate(self):
        g = self.params["g"]
        return {"distance": float(abs(g[1] - 2.0) + abs(abs(g[0]) - 0.7))}


class Bandit:
    """REINFORCE on a bandit with several arms: the reward rises, noisily."""

    def __init__(self, rng, options):
        self.rng, self.options = rng, options
        self.worth = rng.normal(size=options.get("arms", 6)) * options.get("apart", 1.0)
        self.params = {"logits": np.zeros(len(self.worth))}
        self.usual = 0.0

    def learn(self, step, lr):
        logits = self.params["logits"]
        chances = np.exp(logits - logits.max())
        chances /= chances.sum()
        arms = self.rng.choice(len(chances), self.options.get("batch", 16), p=chances)
        rewards = self.worth[arms] + self.options.get("noise", 1.0) * self.rng.normal(size=len(arms))
        grad = np.zeros_like(logits)
        for arm, reward in zip(arms, rewards, strict=True):
            push = -chances.copy()
            push[arm] += 1
            grad += (reward - self.usual) * push
        self.usual += 0.1 * (rewards.mean() - self.usual)
        logits += lr * grad / len(arms)
        entropy = float(-np.sum(chances * np.log(chances + 1e-12)))
        policy = float(-np.mean((rewards - self.usual) * np.log(chances[arms] + 1e-12)))
        return {"reward": float(rewards.mean()), "entropy": entropy, "policy_loss": policy}

    def evaluate(self):
        return {"eval_reward": float(self.worth[int(self.params["logits"].argmax())])}


class Variational(Regression):
    """A penalty whose weight rises by plan: the whole loss rises though all goes well."""

    def learn(self, step, lr):
        told = super().learn(step, lr)
        weight = min(1.0, step / self.options.get("ramp", 150)) * self.options.get("penalty", 2.0)
        spread = float(np.mean([np.mean(value**2) for value in self.params.values()]))
        return {
            **told,
            "loss": told["loss"] + weight * spread,
            "recon_loss": told["loss"],
            "beta": weight,
            "kl": spread,
        }


class Grokking(Classes):
    """Learns its few samples by heart first, and what they have in common much later, by weight decay."""

    def make(self):
        self.options.setdefault("size", 60)
        super().make()


MODELS = {
    "regression": Regression,
    "linear": Linear,
    "classes": Classes,
    "autoencoder": Autoencoder,
    "recurrent": Recurrent,
    "factors": Factors,
    "players": Players,
    "bandit": Bandit,
    "variational": Variational,
    "grokking": Grokking,
}
