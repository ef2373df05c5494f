# The light tool, without torch: ONNX files, saved estimates, devices, plans.
#   docker build -t analyze . && docker run --rm -v "$PWD:/work" analyze model.onnx --batch 8 --device rtx4090
# A Python program is analysed where its own libraries are: pip install '.[torch]' beside them.
FROM python:3.13 AS build
WORKDIR /source
COPY . .
RUN pip wheel --quiet --no-deps --wheel-dir /wheels .

FROM python:3.13-slim
COPY --from=build /wheels /wheels
COPY constraints.txt /wheels/
RUN pip install --quiet --no-cache-dir -c /wheels/constraints.txt /wheels/*.whl
USER 1000
WORKDIR /work
ENTRYPOINT ["analyze"]
