# serving.Dockerfile: a model, what it needs to start, and a server; neither a compiler nor onnx
FROM python:3.12-slim AS warm
RUN pip install opbuild
COPY model.onnx /app/
RUN opbuild warm /app/model.onnx --shape x:1,256 --target x86-64-v3,x86-64-v4,x86-64-v4-bf16 --cache_path /opt/opbuild

FROM python:3.12-slim
RUN pip install --no-deps opbuild
RUN pip install blake3 numpy gunicorn
COPY --from=warm /opt/opbuild /opt/opbuild
WORKDIR /app
COPY model.onnx service.py wsgi.py ./
ENV MODEL=/app/model.onnx
ENV OPBUILD_CACHE=/opt/opbuild
ENV OPBUILD_FORBID_COMPILE=1
ENV OPBUILD_FIRST=wait
USER 10001
CMD ["gunicorn", "--bind", "0.0.0.0:8000", "--worker-tmp-dir", "/dev/shm", "--no-control-socket", "wsgi:application"]
