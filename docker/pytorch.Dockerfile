# PyTorch with flash attention for AMD GPUs that its ROCm builds have no images for (docs/containers.md).
#
# Without a GPU: a PyTorch on virtual GPUs; `docker run --rm attention` then executes docker/attention.py on each.
#   docker build -f docker/pytorch.Dockerfile -t attention .
# On your own image, which has PyTorch for ROCm:
#   docker build -f docker/pytorch.Dockerfile -t attention --target pytorch --build-arg BASE=IMAGE --build-arg ARCH=gfx906 .
ARG BUILDER=python:3.13
ARG BASE=virtual

# Wheels of the library and the images: those of the folder wheels/, else of this checkout.
FROM ${BUILDER} AS wheels
ARG ARCH=gfx906,gfx908
ARG LEVEL=0.11.2b
ARG PROFILE=core
WORKDIR /aotforge
COPY . .
RUN if [ ! -d wheels ]; then \
        ./dev release --version "$LEVEL" --arch "$ARCH" --profile "$PROFILE" --wheels --development --unsigned \
            --no-windows --executor local --output /tmp/finished && mv /tmp/finished/* wheels; \
    fi

# PyTorch's CPU build, whose device `cuda` becomes a virtual GPU; nothing is done where BASE is another image.
FROM wheels AS virtual
ARG ARCH=gfx906,gfx908
ARG BASE
RUN if [ "$BASE" = virtual ]; then set -eu; ./dev python -c ""; \
        ln -s /aotforge/.aotforge/venv-* /opt/virtual; \
        install="/opt/virtual/bin/python -m pip install --no-cache-dir --no-deps --require-hashes --only-binary :all:"; \
        $install -r requirements/test.txt; \
        $install -r requirements/torch.txt --retries 1 --extra-index-url https://download.pytorch.org/whl/cpu; \
        mkdir /tmp/release && tar -xzf "$(ls wheels/*-shared.tar.gz | head -n 1)" -C /tmp/release; \
        AOTFORGE_CACHE=/opt/cache PYTHONPATH=. /opt/virtual/bin/python -m tests.support.virtual_torch \
            /opt/virtual/lib/python3*/site-packages /tmp/release/aotriton /opt/hip; \
    fi
ENV PATH=/opt/virtual/bin:$PATH LD_LIBRARY_PATH=/opt/hip AOTFORGE_CACHE=/opt/cache ARCHS=$ARCH
CMD ["sh", "-c", "export AOTFORGE_ASM=$(ls /aotforge/wheels/*-asm-* | paste -sd :); for arch in $(echo $ARCHS | tr , ' '); do AOTFORGE_VIRTUAL=devices=$arch python3 /opt/attention/attention.py || exit; done"]

FROM ${BASE} AS pytorch
ARG ARCH=gfx906,gfx908
COPY --from=wheels /aotforge/wheels /opt/attention/wheels
COPY docker/attention.py /opt/attention/
# fails where the base's PyTorch needs another library; a machine that builds has no GPU, hence the 1
RUN python3 -m pip install --no-cache-dir --no-index --only-binary :all: --find-links /opt/attention/wheels \
        "aotforge-attention[$ARCH]" && AOTFORGE_ATTENTION=1 python3 -m aotforge_attention
HEALTHCHECK --interval=5m CMD ["python3", "-m", "aotforge_attention"]
