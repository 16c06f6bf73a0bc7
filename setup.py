"""Installs the package `hklm`; the binaries in `experiments/` run from a clone."""

import setuptools

# Lower bounds were installed exactly and passed the suite: see "Oldest versions" in WORKSPACE.md.
BASE = [
    "absl-py>=2.3.1",
    "chex>=0.1.91",
    "dm-haiku>=0.0.16",
    "flatbuffers>=24.3.25",
    "jax>=0.10.0",
    "jaxlib>=0.10.0",
    "ml_dtypes>=0.5.0",
    "numpy>=2.1.0",
    "optax>=0.2.6",
    "orbax-checkpoint>=0.11.33",
    "safetensors>=0.5.0",
    "tokenizers>=0.21.0",
    "tqdm>=4.66.0",
]

setuptools.setup(
    name="hklm",
    version="0.1.0",
    description="Modular recurrent language models as pure functions, with Haiku and JAX.",
    license="Apache-2.0",
    packages=setuptools.find_packages(include=["hklm", "hklm.*"]),
    package_data={"hklm.report": ["page.html", "page.css", "page.js"]},
    python_requires=">=3.11,<3.14",
    install_requires=BASE,
    extras_require={
        "test": ["pytest>=8.0", "pytest-xdist>=3.6", "ruff>=0.9", "selenium>=4.20"],
        "plots": ["matplotlib>=3.9", "tensorboardX>=2.6.5"],
        "torch": ["torch>=2.6"],
        "cuda": ["jax[cuda12]>=0.10.0"],
    },
)
