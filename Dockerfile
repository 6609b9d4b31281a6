# docker build --tag spreadout .
# docker run --rm -v "$PWD:/work" spreadout run digits-fedaws rounds=5
#
# For a GPU: --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cu130, and run with --gpus all.
ARG PYTHON=3.12
FROM python:${PYTHON}-slim AS build
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
ARG EXTRAS=export,flower,images,index,pandas,parquet,plot,privacy,serve
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN python -m venv /opt/spreadout
ENV PATH=/opt/spreadout/bin:$PATH
WORKDIR /src
# What the package needs, each in the version of the lock; what only its tests need stays out.
COPY requirements.lock pyproject.toml setup.py README.md LICENSE MANIFEST.in ./
COPY src src
RUN pip install --constraint requirements.lock setuptools wheel \
 && pip install --constraint requirements.lock --extra-index-url "$TORCH_INDEX" --no-build-isolation ".[$EXTRAS]"

FROM python:${PYTHON}-slim
COPY --from=build /opt/spreadout /opt/spreadout
ENV PATH=/opt/spreadout/bin:$PATH
RUN useradd --create-home --uid 1000 spreadout && install -d -o spreadout /work
USER spreadout
WORKDIR /work
ENTRYPOINT ["spreadout"]
CMD ["--help"]
