# marlnb, JupyterLab and the notebooks: `docker build --tag marlnb .`; docs/install.md says how to run it.
FROM python:3.12-slim

# torch for the CPU; for NVIDIA GPUs: --build-arg TORCH_WHEELS=https://download.pytorch.org/whl/cu126
ARG TORCH_WHEELS=https://download.pytorch.org/whl/cpu
# more of marlnb: --build-arg EXTRAS='[sisl,vmas]'
ARG EXTRAS=

WORKDIR /usr/src/marlnb
COPY pyproject.toml README.md LICENSE ./
# what the wheel is built with, and JupyterLab's tab of runs if `make extension` has built it here
COPY extensions extensions
COPY data data
COPY marlnb marlnb
RUN pip install --no-cache-dir --extra-index-url "$TORCH_WHEELS" ".$EXTRAS"

RUN useradd --create-home user
USER user
WORKDIR /home/user
COPY --chown=user data data
COPY --chown=user docs docs
COPY --chown=user notebooks notebooks

EXPOSE 8888
CMD ["marlnb", "lab", "--ip", "0.0.0.0", "--no-browser"]
